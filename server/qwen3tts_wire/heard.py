"""Text heard: words on the audio timeline, cut at a playout position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Word:
    """A spoken word."""

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
    """Precision of ``start`` and ``end``: ``exact`` or ``estimated``."""
    precision_ms: float | None = None
    """Error bound of 95 of 100 words, where it was measured."""

    def moved(self, samples: int) -> Word:
        return replace(self, start=self.start + samples, end=self.end + samples)

    def at_rate(self, from_hz: int, to_hz: int) -> Word:
        return replace(self, start=self.start * to_hz // from_hz, end=self.end * to_hz // from_hz)


@dataclass(frozen=True)
class Heard:
    """A text cut at a playout position; ``text_heard + text_remaining`` is the whole text."""

    text_heard: str
    text_remaining: str
    words_heard: int


def heard(text: str, words: Sequence[Word], position: int, *, total: int | None = None) -> Heard:
    """Cut ``text`` at the playout position ``position``, in samples.

    A word is heard when half of it was played: an engine may count the pause after a word as part
    of it, and a barge-in reacts to a word begun. Closing punctuation belongs to its word. ``total``
    is the length of a done context: a listener who reached it has heard everything.
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
