"""Which characters a word event stands for. The library tells only where a word begins, tells the
words of a number or an emoji's name one by one, and a phrase or a hyphenated word only once."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from dataclasses import dataclass

from qwen3tts_engine.segment_chars import joins_previous, unspaced

_NUMBER = re.compile(r"\d+(?:[.,:٫٬]\d+)*")  # noqa: RUF001 - Arabic separators too
_APOSTROPHES = "'’ʼ"  # noqa: RUF001


@dataclass(frozen=True, slots=True)
class Span:
    """Characters that stay together."""

    start: int
    end: int
    is_word: bool
    """Letters or digits, which are always spoken; else a symbol or punctuation."""


class Spans:
    """The spans of a text: words, whole numbers, single symbols; white space is in none."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.spans = _spans(text)
        self._starts = [span.start for span in self.spans]

    def __len__(self) -> int:
        return len(self.spans)

    def at(self, position: int) -> int | None:
        """Number of the span that holds the code point, or None."""
        index = bisect_right(self._starts, position) - 1
        if index >= 0 and position < self.spans[index].end:
            return index
        return None

    def after(self, position: int) -> int | None:
        """Number of the first span that begins at the code point or later, or None."""
        index = bisect_right(self._starts, position - 1)
        return index if index < len(self.spans) else None

    def words(self, first: int, following: int) -> list[tuple[int, int]]:
        """Characters of what an event at span ``first`` stands for when the next event is at span
        ``following``: that word, and the words between the two that no event told. Those that no
        white space parts (``well-known``) are one."""
        start, end = self.spans[first].start, self.spans[first].end
        found = []
        for span in self.spans[first + 1 : following]:
            if not span.is_word:
                continue
            if any(char.isspace() for char in self._text[end : span.start]):
                found.append((start, end))
                start = span.start
            end = span.end
        return [*found, (start, end)]


def _spans(text: str) -> list[Span]:
    found = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        end, is_word = _one(text, at)
        while end < len(text) and joins_previous(text[end]):
            # A joiner (U+200D) also takes what follows it.
            end = min(end + (2 if text[end] == "\u200d" else 1), len(text))
        found.append(Span(at, end, is_word))
        at = end
    return found


def _one(text: str, at: int) -> tuple[int, bool]:
    """Where the span that begins at ``at`` ends, without what joins it; whether it is a word."""
    char = text[at]
    if number := _NUMBER.match(text, at):
        return number.end(), True
    if unspaced(char):
        return at + 1, unicodedata.category(char)[0] in "LMN"
    if char.isalnum():
        end = at + 1
        while end < len(text) and _goes_on(text, end):
            end += 1
        return end, True
    if _is_regional(char) and at + 1 < len(text) and _is_regional(text[at + 1]):
        return at + 2, False
    return at + 1, False


def _goes_on(text: str, at: int) -> bool:
    """Whether the letter before ``at`` and what is there are of one word."""
    char = text[at]
    if char in _APOSTROPHES:
        return at + 1 < len(text) and text[at + 1].isalpha()
    return (char.isalpha() and not unspaced(char)) or joins_previous(char)


def _is_regional(char: str) -> bool:
    """One of the letters that make flags in pairs."""
    return 0x1F1E6 <= ord(char) <= 0x1F1FF
