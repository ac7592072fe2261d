"""Word alignment of generated speech, found while it is made.

An aligner knows the expected length of each word (word_units), the voice's rate, its pauses, and
when each token went in; each pause that fits a stop in the text is an anchor. Each word has the
distance within which 95 of 100 words lie (benchmarks/alignment.py).
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
    start: int
    """First sample, of those pushed."""
    end: int
    """Sample after it; never after those pushed so far."""
    char_start: int
    """First code point in the text of the generation."""
    char_end: int
    """Code point after it."""
    precision_ms: float
    """Usual bound of the error of ``start`` and ``end``."""


class WordAligner(Protocol):
    """Incremental word aligner. Words come in order, without overlap, each once."""

    def append(self, text: str) -> None: ...

    def end_text(self) -> None: ...

    def entered(self, char_end: int, frame: int) -> None:
        """Note live text up to a code point entered the model at a frame."""
        ...

    def push(self, samples: NDArray[Any]) -> list[AlignedWord]:
        """Take samples [n] given out; return completed words."""
        ...

    def end(self, until: int | None = None) -> list[AlignedWord]:
        """End the sound; return the other words that begin before a code point."""
        ...

    def unsaid(self) -> int | None:
        """Return the first code point probably not spoken yet, or None."""
        ...

    def spent(self) -> bool:
        """Return whether all text was spoken, however slow the voice is."""
        ...

    def too_short(self) -> bool:
        """Return whether the sound is too short, however fast the voice is."""
        ...


AlignFunction = Callable[[NDArray[Any], str, int], Sequence[tuple[int, int, int, int]]]
"""``align(samples [n] float32, text, sample_rate)``: (first sample, sample after it, first code
point, code point after it) of each word, in order."""


class ForcedAligner:
    """Forced aligner (CTC, an ASR model with word times) as a WordAligner.

    Its words come when the sound ends.

    Args:
        align: aligns the whole sound.
        precision_ms: within which 95 of 100 of its words lie.
        sample_rate: of the samples pushed, hertz.
    """

    def __init__(
        self, align: AlignFunction, precision_ms: float, sample_rate: int = 24_000
    ) -> None:
        self._align = align
        self._precision_ms = precision_ms
        self._sample_rate = sample_rate
        self._text: list[str] = []
        self._sound: list[NDArray[np.float32]] = []

    def append(self, text: str) -> None:
        self._text.append(text)

    def end_text(self) -> None: ...

    def entered(self, char_end: int, frame: int) -> None: ...

    def push(self, samples: NDArray[Any]) -> list[AlignedWord]:
        self._sound.append((samples / full_scale(samples)).astype(np.float32))
        return []

    def unsaid(self) -> int | None:
        text = "".join(self._text)
        said_s, usual = self._said_s(), usual_s(text)
        if said_s >= usual:
            return None
        at = text.rfind(" ", 0, int(len(text) * said_s / usual) + 1)
        return max(at, 0)

    def spent(self) -> bool:
        return self._said_s() >= SLOWEST * usual_s("".join(self._text))

    def too_short(self) -> bool:
        return self._said_s() < FASTEST * usual_s("".join(self._text))

    def _said_s(self) -> float:
        return sum(map(len, self._sound)) / self._sample_rate

    def end(self, until: int | None = None) -> list[AlignedWord]:
        text = "".join(self._text)[:until]
        sound = np.concatenate(self._sound) if self._sound else np.zeros(0, np.float32)
        found: list[AlignedWord] = []
        at = 0
        for start, end, char_start, char_end in self._align(sound, text, self._sample_rate):
            start = min(max(at, start), len(sound))
            at = min(max(start, end), len(sound))
            found.append(AlignedWord(start, at, char_start, char_end, self._precision_ms))
        return found
