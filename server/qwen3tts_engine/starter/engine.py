"""Engine decorator that speaks openings from memory.

An opening in memory (``Sure, `` of *Sure, I can look that up.*) is a piece of its own (text_plan.py
asks ``openings``): it is sent immediately while the inner engine makes the rest.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from qwen3tts_engine.base import Engine, PcmChunk, SynthesisRequest
from qwen3tts_engine.starter.memory import (
    CachedSound,
    CacheKey,
    OpeningCache,
    SpeechStyle,
    cached_sound,
)
from qwen3tts_engine.wrapped import WrappedEngine, task_of
from qwen3tts_text.characters import weight
from qwen3tts_text.openings import Phrases, folded
from qwen3tts_text.segmenter import Segmenter, SegmenterSettings
from qwen3tts_wire.errors import SpeechError

PHRASE_MAX = 200
"""Code points of an opening: more is no opening, and would hold a text back for long."""
_HAN = weight("\u6f22")
"""Letters that a Han character counts for (segmenter.py)."""


@dataclass(frozen=True)
class StarterSettings:
    phrases: tuple[str, ...] = ()
    """Openings prepared for every voice of ``voices``. Write each as the texts do, with the mark
    that follows it: ``Sure,`` is not ``Sure!``."""
    voices: tuple[str, ...] = ()
    """Voices to prepare them for, by any of their names (``clone:Anna``); empty: the default."""
    languages: tuple[str, ...] = ()
    """Languages that requests name, besides none: an opening kept for none is not used where one
    is named."""
    max_bytes: int = 32 * 1024 * 1024
    """Bound of all that is kept; what is prepared goes before what is remembered."""
    remember: bool = False
    """True if short first clauses are cached when spoken, the oldest dropped first."""
    remember_chars: int = 40
    """Longest clause that is remembered, in code points."""
    dual_segment: bool = False
    """True if a text that is spoken by clauses begins with a short piece, then longer ones."""
    starter_chars: tuple[int, int] = (2, 6)
    """Shortest and longest such beginning in Han characters, 3 letters each. It ends at a mark from
    the one on, and at the latest with the other, between words where the script parts them."""
    main_chars: tuple[int, int] = (20, 60)
    """The same of the pieces after it; only a flush or the end of the text makes shorter ones."""
    prepare_timeout_s: float = 60.0
    """An opening that is not ready by then is left out."""

    def __post_init__(self) -> None:
        for phrase in self.phrases:
            if not 1 <= len(phrase) <= PHRASE_MAX:
                raise ValueError(f"phrases: {phrase[:20]!r}… needs 1 to {PHRASE_MAX} characters")
            if not any(char.isalnum() for char in phrase):
                raise ValueError(f"phrases: {phrase!r} says nothing")
        for name in ("max_bytes", "remember_chars"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must not be negative")
        if self.remember_chars > PHRASE_MAX:
            raise ValueError(f"remember_chars={self.remember_chars} must be at most {PHRASE_MAX}")
        if not (math.isfinite(self.prepare_timeout_s) and self.prepare_timeout_s > 0):
            raise ValueError(f"prepare_timeout_s={self.prepare_timeout_s} must be above 0")
        for name in ("starter_chars", "main_chars"):
            bounds: tuple[int, ...] = getattr(self, name)
            if len(bounds) != 2 or not 1 <= bounds[0] <= bounds[1] <= 100:
                raise ValueError(f"{name}={bounds} needs a least and a most, from 1 to 100")

    @property
    def wanted(self) -> bool:
        return bool(self.phrases) or self.remember or self.dual_segment

    def clauses(self, settings: SegmenterSettings) -> SegmenterSettings:
        if not self.dual_segment:
            return settings
        (least, most), (main_least, main_most) = self.starter_chars, self.main_chars
        longest = (_HAN * most, _HAN * main_most)
        return SegmenterSettings(
            sentence_min=(settings.sentence_min[0], _HAN * main_least),
            clause_min=(max(1, _HAN * least - 1), _HAN * main_least),
            whole_max=longest,
            hard_max=max(settings.hard_max, *longest),
            speak_code=settings.speak_code,
            unspaced_max=longest,
            opening_counts=True,
        )


log = logging.getLogger(__name__)

Progress = Callable[[str, int, int], None]
"""Activity, amount done, amount in all."""
FindVoice = Callable[[str], Awaitable[str | None]]
AT_ONCE = 4
"""Openings prepared concurrently."""
ATTEMPTS = 3
"""Attempts at one that does not end: a model that samples may stray once."""
WHOLE = SegmenterSettings(
    sentence_min=(2 * PHRASE_MAX * 3,),
    clause_min=(2 * PHRASE_MAX * 3,),
    whole_max=(2 * PHRASE_MAX * 3,),
    hard_max=2 * PHRASE_MAX * 3,
)
"""An opening is one piece, however it is built."""


class StarterEngine(WrappedEngine):
    """``inner`` with a memory of openings.

    ``start`` prepares all phrases for all voices; a failure is a note. ``close`` clears the memory:
    another start may find another checkpoint.
    """

    def __init__(
        self,
        inner: Engine,
        settings: StarterSettings | None = None,
        *,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(inner)
        self.settings = settings or StarterSettings()
        self.hits = 0
        """First clauses of a text spoken from memory."""
        self.misses = 0
        """First clauses that the inner engine had to make."""
        self._memory = OpeningCache(self.settings.max_bytes)
        self._progress: Progress = progress or (lambda _what, _done, _of: None)
        self._notes: list[str] = []
        self._starting = asyncio.Lock()
        self._prepared = False
        self._default: str | None = None
        """The voice of requests that name neither voice nor language."""
        self.find_voice: FindVoice | None = None
        """Set by a wrapper that gives voices more names: the engine's id of one, made ready."""
        self._ids: dict[str, str | None] = {}
        """Last meaning of the names of ``settings.voices``."""
        self._life = 0
        """Grows with each close: what was begun before is not kept after it."""

    @property
    def bytes(self) -> int:
        return self._memory.bytes

    @property
    def entries(self) -> int:
        """Sounds in memory; an opening has two, before other text and alone."""
        return len(self._memory)

    @property
    def notes(self) -> Sequence[str]:
        return (*super().notes, *self._notes)

    async def start(self) -> None:
        await self.inner.start()
        async with self._starting:
            if not self._prepared:
                life = self._life
                self._notes.clear()
                self._default = next((each.id for each in self.inner.voices()), None)
                await self._prepare(self.settings.voices)
                self._prepared = life == self._life

    async def close(self) -> None:
        self._life += 1
        self._prepared = False
        self._memory.clear()
        self._ids.clear()
        await self.inner.close()

    # --- what a text may begin with ---

    def openings(self, style: SpeechStyle) -> Phrases | None:
        if task_of(self.inner) == "voice_design":
            return None  # a designed voice is that of one context
        return self._memory.phrases(self._resolved(style))

    # --- speaking ---

    def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[PcmChunk, None]:
        made_apart = request.layout is not None or task_of(self.inner) == "voice_design"
        if request.continued or made_apart:
            return self.inner.synthesize(request)
        key = self._key(request)
        entry = self._memory.find(key) if key is not None else None
        if entry is not None:
            self.hits += 1
            return self._from_memory(entry, request)
        self.misses += 1
        if key is None or not self._is_remembered(request):
            return self.inner.synthesize(request)
        return self._remembered(request, key)

    async def _from_memory(
        self, entry: CachedSound, request: SynthesisRequest
    ) -> AsyncGenerator[PcmChunk, None]:
        counted = request.lead if "lead" in self.inner.options else None
        marks = {"starter": time.monotonic()}
        for chunk in entry.said_for(request):
            if counted is not None:
                counted.made(chunk.samples)
            yield replace(chunk, marks=marks) if marks else chunk
            if marks and chunk.pcm:
                marks = {}
                await asyncio.sleep(0)  # the writer to the client runs before the rest

    def _is_remembered(self, request: SynthesisRequest) -> bool:
        settings = self.settings
        return settings.remember and len(request.text) <= settings.remember_chars

    async def _remembered(
        self, request: SynthesisRequest, key: CacheKey
    ) -> AsyncGenerator[PcmChunk, None]:
        life = self._life
        heard: list[PcmChunk] = []
        # Words are kept by their places in the request's own text, so it gets no offsets.
        async with aclosing(self.inner.synthesize(replace(request, offsets=None))) as chunks:
            async for chunk in chunks:
                heard.append(chunk)
                yield _placed(chunk, request)
        entry = cached_sound(request.text, heard)
        if entry is not None and life == self._life:
            self._memory.keep(key, entry)

    def _key(self, request: SynthesisRequest) -> CacheKey | None:
        if not self._prepared or (request.more is not None and not request.more.ended):
            return None
        style = SpeechStyle(
            request.voice,
            request.language,
            request.speed,
            request.instructions,
            request.sampling,
            request.seed,
        )
        return CacheKey(self._resolved(style), folded(request.text), request.final)

    def _resolved(self, style: SpeechStyle) -> SpeechStyle:
        if style.voice is None and style.language is None:
            return replace(style, voice=self._default)
        return style

    # --- preparing ---

    async def prepare_voice(self, name: str) -> None:
        if self._prepared:
            await self._prepare((name,))

    async def _found(self, name: str) -> str | None:
        if self.find_voice is None:
            return name
        try:
            found = await self.find_voice(name)
        except SpeechError as error:
            self._note(f"Openings are not kept for the voice {name!r}: {error}")
            return None
        before, self._ids[name] = self._ids.get(name), found
        if before is not None and before not in self._ids.values():
            self.forget_openings(before)
        return found

    def forget_openings(self, voice: str) -> None:
        self._memory.drop(voice)

    def _note(self, note: str) -> None:
        if note not in self._notes:
            self._notes.append(note)
            log.warning("%s", note)

    async def _prepare(self, names: Sequence[str]) -> None:
        settings = self.settings
        found = [await self._found(name) for name in names]
        voices = list(dict.fromkeys(each for each in found if each is not None))
        orders = [
            (text, SpeechStyle(voice, language), final)
            for voice in (voices if names else (None,))
            for language in (None, *settings.languages)
            for text in dict.fromkeys(map(spoken_form, settings.phrases))
            for final in (False, True)
        ]
        done = 0
        turn = asyncio.Semaphore(AT_ONCE)

        async def prepare(text: str, style: SpeechStyle, final: bool) -> None:
            nonlocal done
            async with turn:
                note = await self._prepare_one(text, style, final)
            if note is not None:
                self._note(note)
            done += 1
            self._progress("preparing openings", done, len(orders))

        async with asyncio.TaskGroup() as tasks:
            for order in orders:
                tasks.create_task(prepare(*order))
        if orders:
            log.info("%d openings are kept, %d bytes", self.entries, self.bytes)

    async def _prepare_one(self, text: str, style: SpeechStyle, final: bool) -> str | None:
        what = f"The opening {text!r} is not kept"
        if style.voice is not None:
            what += f" for the voice {style.voice!r}"
        request = SynthesisRequest(text, style.voice, style.language, final=final)
        entry = None
        try:
            async with asyncio.timeout(self.settings.prepare_timeout_s):
                for _ in range(ATTEMPTS):
                    async with aclosing(self.inner.synthesize(request)) as chunks:
                        entry = cached_sound(text, [chunk async for chunk in chunks])
                    if entry is not None:
                        break
        except TimeoutError:
            return f"{what}: it was not said within {self.settings.prepare_timeout_s:g} s."
        except SpeechError as error:
            return f"{what}: {error}"
        except Exception:
            log.exception("the engine broke while it said an opening")
            return f"{what}: the engine broke; the log has the reason."
        if entry is None:
            return f"{what}: it has no sound, or no end."
        key = CacheKey(self._resolved(style), folded(text), final)
        if not self._memory.keep(key, entry, pinned=True):
            return f"{what}: starters.max_bytes={self._memory.max_bytes} is spent."
        return None


def spoken_form(phrase: str) -> str:
    segmenter = Segmenter(WHOLE)
    return " ".join(each.text for each in (*segmenter.push(phrase), *segmenter.end()) if each.text)


def _placed(chunk: PcmChunk, request: SynthesisRequest) -> PcmChunk:
    if request.offsets is None or not chunk.words:
        return chunk
    words = []
    for word in chunk.words:
        char_start, char_end = request.original(word.char_start, word.char_end)
        words.append(replace(word, char_start=char_start, char_end=char_end))
    return replace(chunk, words=tuple(words))


def starters_of(engine: Engine) -> StarterEngine | None:
    """Return an engine's memory of openings, however wrapped, or None."""
    while isinstance(engine, WrappedEngine):
        if isinstance(engine, StarterEngine):
            return engine
        engine = engine.inner
    return None


def openings_of(engine: Engine, style: SpeechStyle) -> Phrases | None:
    while isinstance(engine, WrappedEngine):
        if isinstance(engine, StarterEngine):
            return engine.openings(style)
        resolve = getattr(engine, "resolve", None)
        if resolve is not None:
            try:
                style = replace(style, voice=resolve(style.voice, style.language))
            except SpeechError:
                return None  # synthesis raises the error
        engine = engine.inner
    return None
