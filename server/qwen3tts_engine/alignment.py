"""When each word of a generation is heard, found while its sound is made. Pure.

A model of speech does not say where it is in its text. What is known: how long words usually are
beside one another (word_units), that a voice keeps its rate for a while, that it pauses where the
text has a comma or an end of a sentence (pauses), that a word cannot begin before its first token
went in, and, at the end, that the last word ends with the last sound. Words are laid along the
voiced time at the rate found so far; each pause that fits a stop in the text becomes an anchor,
from which the rate is corrected and the next words are counted. The rate is kept for the voice's
next clause.

Each word comes with the distance within which its times usually lie: 95 of 100 words, as
benchmarks/alignment.py measures on sound whose word times are known. How well this does on the
published checkpoints can only be measured with their weights, and so can whether the attention of
the talker would help: an aligner that knows more takes this one's place behind ``WordAligner``, or
a forced aligner behind ``ForcedAligner``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from qwen3tts_engine.guards import full_scale
from qwen3tts_engine.speech_rhythm import FASTEST, SLOWEST
from qwen3tts_text.word_units import usual_s


@dataclass(frozen=True, slots=True)
class AlignedWord:
    """A word and its place in the sound."""

    start: int
    """First sample, of those pushed."""
    end: int
    """Sample after it; never after those pushed so far."""
    char_start: int
    """First code point in the text of the generation."""
    char_end: int
    """Code point after it."""
    precision_ms: float
    """How far off ``start`` and ``end`` usually are at most."""


class WordAligner(Protocol):
    """Finds word times while sound arrives. Words come in order, without overlap, each once."""

    def append(self, text: str) -> None:
        """More of the text."""
        ...

    def end_text(self) -> None:
        """No more text."""
        ...

    def entered(self, char_end: int, frame: int) -> None:
        """The text up to a code point had gone into the model with a frame (live text)."""
        ...

    def push(self, samples: NDArray[Any]) -> list[AlignedWord]:
        """Sound [n] that was given out; the words that are complete with it."""
        ...

    def end(self, until: int | None = None) -> list[AlignedWord]:
        """No more sound: the rest of the words, of those that begin before a code point."""
        ...

    def unsaid(self) -> int | None:
        """First code point of what has probably not been said yet; None: all of it has."""
        ...

    def spent(self) -> bool:
        """Return whether all of the text has been said for certain, however slow the voice is."""
        ...

    def too_short(self) -> bool:
        """Return whether the sound is too short for the text, however fast the voice is."""
        ...


Align = Callable[[NDArray[Any], str, int], Sequence[tuple[int, int, int, int]]]
"""``align(samples [n] float32, text, sample_rate)``: (first sample, sample after it, first code
point, code point after it) of each word, in order."""


class ForcedAligner:
    """An aligner of someone else's (CTC, an ASR model with word times, ...) as a WordAligner.

    It sees the sound as a whole, so its words come when the sound ends: for text heard in
    recordings and tests, or for clauses that are made well ahead of their listener.

    Args:
        align: does it.
        precision_ms: what it is known to reach, with 95 of 100 words.
        sample_rate: hertz, of what is pushed.
    """

    def __init__(self, align: Align, precision_ms: float, sample_rate: int = 24_000) -> None:
        self._align = align
        self._precision_ms = precision_ms
        self._sample_rate = sample_rate
        self._text: list[str] = []
        self._sound: list[NDArray[np.float32]] = []

    def append(self, text: str) -> None:
        """More of the text."""
        self._text.append(text)

    def end_text(self) -> None:
        """No more text."""

    def entered(self, char_end: int, frame: int) -> None:
        """Of no use to it."""

    def push(self, samples: NDArray[Any]) -> list[AlignedWord]:
        """Sound [n], float32 or int16; no words yet."""
        self._sound.append((samples / full_scale(samples)).astype(np.float32))
        return []

    def unsaid(self) -> int | None:
        """As ``WordAligner.unsaid``, by the usual length of the text alone: a forced aligner finds
        all words of a text, whether or not they were said."""
        text = "".join(self._text)
        said_s, usual = self._said_s(), usual_s(text)
        if said_s >= usual:
            return None
        at = text.rfind(" ", 0, int(len(text) * said_s / usual) + 1)
        return max(at, 0)

    def spent(self) -> bool:
        """As ``WordAligner.spent``, by the usual length alone."""
        return self._said_s() >= SLOWEST * usual_s("".join(self._text))

    def too_short(self) -> bool:
        """As ``WordAligner.too_short``, by the usual length alone."""
        return self._said_s() < FASTEST * usual_s("".join(self._text))

    def _said_s(self) -> float:
        return sum(map(len, self._sound)) / self._sample_rate

    def end(self, until: int | None = None) -> list[AlignedWord]:
        """All words. What the aligner says out of order or beyond the sound is put right."""
        text = "".join(self._text)[:until]
        sound = np.concatenate(self._sound) if self._sound else np.zeros(0, np.float32)
        found: list[AlignedWord] = []
        at = 0
        for start, end, char_start, char_end in self._align(sound, text, self._sample_rate):
            start = min(max(at, start), len(sound))
            at = min(max(start, end), len(sound))
            found.append(AlignedWord(start, at, char_start, char_end, self._precision_ms))
        return found
