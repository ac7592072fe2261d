"""Which word is where in the sound, and where in the text."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Word:
    """One spoken word."""

    text: str
    """The word as it was given to the engine."""
    start: int
    """First sample, counted at the context's rate from the context's first sample."""
    end: int
    """First sample after the word."""
    char_start: int
    """Offset of the word in the context's original text, in code points."""
    char_end: int
    """Offset of the first code point after the word."""
    precision: str = "exact"
    """How far ``start`` and ``end`` can be trusted: ``exact`` or ``estimated``."""
    precision_ms: float | None = None
    """How far off they usually are at most (95 of 100 words), where that was measured."""

    def moved(self, samples: int) -> Word:
        """The same word, ``samples`` later."""
        return replace(self, start=self.start + samples, end=self.end + samples)

    def at_rate(self, from_hz: int, to_hz: int) -> Word:
        """The same word, counted in samples of another rate."""
        return replace(self, start=self.start * to_hz // from_hz, end=self.end * to_hz // from_hz)
