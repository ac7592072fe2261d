"""Growing text into the units that vLLM-Omni's clients expect: sentences, clauses, or one.

The units depend on the text alone, never on how it was cut into messages: a mark ends a unit only
when no later character can change that. The rules are those of vLLM-Omni 0.30; our own segmenter
(qwen3tts_text.segmenter) cuts better, but a client counts these.
"""

from __future__ import annotations

from typing import Literal

Granularity = Literal["none", "sentence", "clause"]

ASCII_ENDS = {"none": "", "sentence": ".!?", "clause": ".!?,;"}
"""They end a unit before white space or at the end of the text."""
_SENTENCE = "\u3002\uff01\uff1f\u2026\u0964\u0965\u061f"
"""Full stops, exclamation and question marks of Chinese and Japanese, the ellipsis, Devanagari's
danda and double danda, the Arabic question mark."""
SCRIPT_ENDS = {"none": "", "sentence": _SENTENCE, "clause": _SENTENCE + "\uff0c\uff1b\u060c\u061b"}
"""They end a unit whatever follows; among clause marks the commas and semicolons of Chinese and
Arabic."""
CLOSING = "\"'\u201d\u2019\u00bb)]}\u300f\u300d\uff09\u3011"
"""They stay with the mark before them."""
_RUN = frozenset(ASCII_ENDS["clause"] + SCRIPT_ENDS["clause"] + CLOSING)

_TITLES = ("dr", "mr", "mrs", "ms", "prof", "sr", "jr", "st", "mt")
_OTHERS = ("fig", "no", "vs", "etc", "approx", "dept", "inc", "ltd", "co", "al")
_DOTTED = ("e.g", "i.e", "u.s", "u.k", "a.m", "p.m")
ABBREVIATIONS = frozenset(_TITLES + _OTHERS + _DOTTED)
"""A dot after one of them, in any case, ends nothing; nor does one after a single letter."""
_LONGEST = max(map(len, ABBREVIATIONS))


class Splitter:
    """Text in pieces in, units out.

    >>> splitter = Splitter("sentence")
    >>> splitter.feed("It is 3.14. Or")
    >>> splitter.take(), splitter.take()
    ('It is 3.14.', None)
    >>> splitter.end()
    >>> splitter.take(), splitter.take()
    ('Or', None)
    """

    def __init__(self, granularity: Granularity = "none") -> None:
        self.ended = False
        """Whether all text is here."""
        self._ascii = frozenset(ASCII_ENDS[granularity])
        self._ends = self._ascii | frozenset(SCRIPT_ENDS[granularity])
        self._chars: list[str] = []
        self._start = 0
        """Where the next unit begins."""
        self._scan = 0
        """Everything before it ends nothing."""
        self._run = 0
        """Where the run of marks that begins at ``_scan`` goes on."""

    def __len__(self) -> int:
        """Characters that are in no unit yet."""
        return len(self._chars) - self._start

    def feed(self, text: str) -> None:
        """More text."""
        if 2 * self._start > len(self._chars):
            del self._chars[: self._start]
            self._scan -= self._start
            self._run -= self._start
            self._start = 0
        self._chars.extend(text)

    def end(self) -> None:
        """No more text."""
        self.ended = True

    def take(self) -> str | None:
        """The next unit, without the white space around it; None while there is none."""
        while (cut := self._boundary()) is not None:
            unit = "".join(self._chars[self._start : cut]).strip()
            self._start = self._scan = cut
            if unit:
                return unit
        return None

    def _boundary(self) -> int | None:
        """Where the next unit ends, if that is certain."""
        chars, last = self._chars, len(self._chars)
        if not self._ends:
            self._scan = last
        while self._scan < last:
            at = self._scan
            if chars[at] not in self._ends or self._in_number(at) or self._abbreviates(at):
                self._scan += 1
                continue
            run = max(self._run, at + 1)
            while run < last and chars[run] in _RUN:
                run += 1
            self._run = run
            if run == last and not self.ended:
                return None
            if run < last and chars[at] in self._ascii and not chars[run].isspace():
                self._scan = run
                continue
            return run
        return last if self.ended and self._start < last else None

    def _in_number(self, at: int) -> bool:
        """Whether it is the mark in ``3.14`` or ``1,000``."""
        chars = self._chars
        return (
            chars[at] in ".,"
            and self._start < at < len(chars) - 1
            and chars[at - 1].isdigit()
            and chars[at + 1].isdigit()
        )

    def _abbreviates(self, at: int) -> bool:
        """Whether it is the dot after ``Dr``, ``e.g`` or ``J``."""
        if self._chars[at] != ".":
            return False
        begin = at
        while begin > self._start and at - begin <= _LONGEST and _of_word(self._chars[begin - 1]):
            begin -= 1
        word = "".join(self._chars[begin:at])
        if len(word) == 1 and word.isalpha():
            return True
        return len(word) <= _LONGEST and word.lower().strip(".") in ABBREVIATIONS


def _of_word(char: str) -> bool:
    return char == "." or char.isalnum()
