"""Cache of synthesized openings, by text and style; bounded in bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from qwen3tts_engine.base import SAMPLE_RATE, EndReason, PcmChunk, SynthesisRequest
from qwen3tts_text.characters import PAUSES
from qwen3tts_text.openings import Phrases
from qwen3tts_wire.heard import Word
from qwen3tts_wire.messages import Sampling

WORD_BYTES = 256
"""Bytes counted for a word: its object and its text."""
ENTRY_BYTES = 1024
"""Bytes counted for an entry's key, text and places in tables."""
FADE = SAMPLE_RATE // 200
"""The last 5 ms, faded out where a sound breaks off: what follows it was made apart."""
BROKEN: tuple[EndReason, ...] = (
    *("frame_cap", "dry", "repeated"),
    *("regenerated", "regenerated_cap", "regenerated_repeated"),
)
"""Ends after which a sound is not worth keeping."""
SILENT = 328
"""A step to silence that cannot be heard: 1 % of full scale (-40 dBFS)."""


@dataclass(frozen=True, slots=True)
class SpeechStyle:
    """Everything that a request's sound depends on besides the text."""

    voice: str | None = None
    """The engine's id; None: its default."""
    language: str | None = None
    speed: float = 1.0
    instructions: str | None = None
    sampling: Sampling | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.language is not None:
            object.__setattr__(self, "language", self.language.lower().replace("_", "-"))
        object.__setattr__(self, "instructions", self.instructions or None)
        if self.sampling == Sampling():
            object.__setattr__(self, "sampling", None)


@dataclass(frozen=True, slots=True)
class CacheKey:
    style: SpeechStyle
    text: str
    """Folded (openings.py)."""
    final: bool

    @property
    def bytes(self) -> int:
        style = self.style
        strings = (self.text, style.voice, style.language, style.instructions)
        return 4 * sum(len(each) for each in strings if each is not None)


@dataclass(frozen=True, slots=True)
class CachedSound:
    """Cached sound of one request, in the engine's own chunks."""

    text: str
    chunks: tuple[PcmChunk, ...]
    """``char_start`` and ``char_end`` of their words count in ``text``."""

    @property
    def bytes(self) -> int:
        words = sum(len(each.words) for each in self.chunks)
        return ENTRY_BYTES + WORD_BYTES * words + sum(len(each.pcm) for each in self.chunks)

    @property
    def samples(self) -> int:
        return sum(each.samples for each in self.chunks)

    def said_for(self, request: SynthesisRequest) -> Iterator[PcmChunk]:
        for chunk in self.chunks:
            words = []
            for word in chunk.words:
                first, last = word.char_start, word.char_end
                char_start, char_end = request.original(first, last)
                words.append(
                    Word(
                        request.text[first:last],
                        word.start,
                        word.end,
                        char_start,
                        char_end,
                        word.precision,
                        word.precision_ms,
                    )
                )
            yield PcmChunk(chunk.pcm, tuple(words), chunk.end)


def cached_sound(text: str, chunks: Sequence[PcmChunk]) -> CachedSound | None:
    """Return a cache entry of an engine's sound of ``text``."""
    if not any(each.pcm for each in chunks) or any(each.end in BROKEN for each in chunks):
        return None
    last = max(index for index, each in enumerate(chunks) if each.pcm)
    return CachedSound(
        text,
        tuple(
            PcmChunk(_faded(each.pcm) if index == last else each.pcm, each.words, each.end)
            for index, each in enumerate(chunks)
        ),
    )


def _faded(pcm: bytes) -> bytes:
    out = np.frombuffer(pcm, "<i2").astype(np.float64)
    count = min(FADE, len(out))
    usual = max(np.abs(np.diff(out[-count:])), default=0)
    if abs(out[-1]) <= max(SILENT, usual):
        return pcm
    out[-count:] *= np.arange(count - 1, -1, -1) / count
    return np.rint(out).astype("<i2").tobytes()


class OpeningCache:
    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        """Bytes of all entries, at most ``max_bytes``."""
        self._pinned_bytes = 0
        self._pinned: dict[CacheKey, CachedSound] = {}
        self._others: OrderedDict[CacheKey, CachedSound] = OrderedDict()
        self._phrases: dict[SpeechStyle, Phrases] = {}

    def __len__(self) -> int:
        return len(self._pinned) + len(self._others)

    def __contains__(self, key: CacheKey) -> bool:
        return key in self._pinned or key in self._others

    def find(self, key: CacheKey) -> CachedSound | None:
        found = self._pinned.get(key)
        if found is None and key in self._others:
            self._others.move_to_end(key)
            found = self._others[key]
        return found

    def keep(self, key: CacheKey, entry: CachedSound, *, pinned: bool = False) -> bool:
        if key in self:
            return True
        size = key.bytes + entry.bytes
        if self._pinned_bytes + size > self.max_bytes:
            return False
        while self.bytes + size > self.max_bytes:
            oldest, gone = self._others.popitem(last=False)
            self.bytes -= oldest.bytes + gone.bytes
            self._phrases.pop(oldest.style, None)
        (self._pinned if pinned else self._others)[key] = entry
        self.bytes += size
        self._pinned_bytes += size if pinned else 0
        self._phrases.pop(key.style, None)
        return True

    def drop(self, voice: str) -> None:
        for entries, pinned in ((self._pinned, True), (self._others, False)):
            for key in [key for key in entries if key.style.voice == voice]:
                size = key.bytes + entries.pop(key).bytes
                self.bytes -= size
                self._pinned_bytes -= size if pinned else 0
                self._phrases.pop(key.style, None)

    def clear(self) -> None:
        self._pinned.clear()
        self._others.clear()
        self._phrases.clear()
        self.bytes = self._pinned_bytes = 0

    def phrases(self, style: SpeechStyle) -> Phrases | None:
        found = self._phrases.get(style)
        if found is None:
            # What is remembered may have been cut anywhere, by a pause in the text.
            keys = (*self._pinned, *(key for key in self._others if key.text[-1:] in PAUSES))
            texts = [key.text for key in keys if key.style == style and not key.final]
            if not texts:
                return None  # not noted: callers may name as many styles as they like
            found = self._phrases[style] = Phrases(texts)
        return found
