"""What a listener has heard: a pure function of the text, its words and a position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qwen3tts_wire.alignment import Word


@dataclass(frozen=True)
class Heard:
    """A text, cut at what was heard. ``text_heard + text_remaining`` is always the whole text."""

    text_heard: str
    text_remaining: str
    words_heard: int


def heard(text: str, words: Sequence[Word], position: int, *, total: int | None = None) -> Heard:
    """Cut ``text`` where the listener was after ``position`` samples.

    A word counts as heard when at least half of it was played: an engine may count the pause after
    a word as part of it, and a listener who cuts in reacts to a word begun, not to its last sample.
    Signs that close a word belong to it. ``total``, once the context is done, is its length in
    samples: a listener who reached it has heard everything, spoken or not.
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
