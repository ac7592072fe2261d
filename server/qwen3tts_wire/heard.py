"""Text heard at a playout position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Word:
    """A spoken word."""

    text: str
    """As given to the engine."""
    start: int
    """First sample at the context's rate."""
    end: int
    """First sample after it."""
    char_start: int
    """Offset in the context's text, code points."""
    char_end: int
    """Offset after it."""
    precision: str = "exact"
    """``exact`` or ``estimated``."""
    precision_ms: float | None = None
    """Error bound of 95 of 100 words, if measured."""

    def moved(self, samples: int) -> Word:
        return replace(self, start=self.start + samples, end=self.end + samples)

    def at_rate(self, from_hz: int, to_hz: int) -> Word:
        return replace(self, start=self.start * to_hz // from_hz, end=self.end * to_hz // from_hz)


@dataclass(frozen=True)
class Heard:
    """Text cut at a playout position; both parts are all text."""

    text_heard: str
    text_remaining: str
    words_heard: int


def heard(text: str, words: Sequence[Word], position: int, *, total: int | None = None) -> Heard:
    """Cut ``text`` at the playout position ``position``, samples.

    A word is heard when half was played: engines may count its pause, and barge-in reacts to a
    begun word. Closing punctuation belongs to it. ``total``: length of a done context; a
    listener there heard everything.
    """
    if total is not None and position >= total:
        return Heard(text, "", len(words))
    count = 0
    cut = 0
    for word in words:
        if position <= word.start or 2 * position < word.start + word.end:
            break
        count += 1
        cut = max(cut, word.char_end)
    if count == 0:
        return Heard("", text, 0)
    limit = max(cut, words[count].char_start) if count < len(words) else len(text)
    while cut < min(limit, len(text)) and not text[cut].isspace() and not text[cut].isalnum():
        cut += 1
    return Heard(text[:cut], text[cut:], count)
