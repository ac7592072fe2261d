"""What is said, character by character: white space collapsed, what makes no sound left out."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

from qwen3tts_text.characters import WHITE_SPACE, Voiced, is_cjk, voiced

Sink = Callable[[str, int, int], None]
"""Takes one spoken character and the span of the original that it stands for."""

REPEATS_MAX = 3
"""Marks of one kind in a row that are kept; ``!!!!!!`` says no more than ``!!!``."""
WRAPPED_MIN = 50
"""Letters after which a line was broken because it was full, not because it was over."""
_CLOSING = frozenset(".,;:!?…)")


class Spoken:
    """Hands characters on to ``sink``, with one space where words part.

    A line's end is handed on as ``\\n`` where the line stands alone, and as a space where the
    sentence goes on in the next line (which begins with a small letter, or the line was full).
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.fresh = True
        """Whether nothing was said on this line yet."""
        self.last = ""
        """The character said last, white space apart."""
        self._repeats = 0
        self._previous = ""
        # What is pending before the next character: where it began, or -1.
        self._space = -1
        self._gap = -1
        self._cell = -1
        self._newlines = 0
        self._firm = False
        self._alone = False
        self._length = 0
        self._wrapped = False

    @property
    def spaced(self) -> bool:
        """Whether white space follows what was said last."""
        return self._space >= 0

    def say(self, char: str, at: int, end: int) -> None:
        """Say a character that is no white space, whatever it is."""
        if "\U0001d400" <= char <= "\U0001d7ff":
            char = unicodedata.normalize("NFKC", char)  # letters dressed up as mathematics
        self._previous = char
        if char == self.last and not char.isalnum() and self._space < 0:
            self._repeats += 1
            if self._repeats > REPEATS_MAX:
                return
        else:
            self._repeats = 1
        if self.last:
            if self._newlines and (self._firm or not (self._wrapped or char.islower())):
                self._sink("\n", self._space, self._space + 1)
            elif self._cell >= 0:
                self._sink(",", self._cell, self._cell + 1)
                self._sink(" ", self._cell + 1, self._cell + 1)
            elif self._space >= 0 and not (self._gap >= 0 and char in _CLOSING):
                self._sink(" ", self._space, self._space + 1)
            elif self._gap >= 0 and self.last.isalnum() and _begins_word(char):
                self._sink(" ", self._gap, self._gap + 1)
        self.pause()
        self.fresh = False
        self._length += 1
        self.last = char
        self._sink(char, at, end)

    def take(self, char: str, at: int, end: int) -> None:
        """Say a character, or leave it out if it makes no sound."""
        if char in WHITE_SPACE:
            if char == "\n":
                self.newline(at)
            elif self._space < 0:
                self._space = at
            return
        what = voiced(char)
        if char in "\u200c\u200d":
            # Joiners shape letters; elsewhere they join emoji.
            shapes = self._previous == self.last and self.last > "\x7f"
            what = Voiced.KEPT if shapes else Voiced.DROPPED
        if what is Voiced.KEPT:
            self.say(char, at, end)
            return
        self._previous = char
        if what is Voiced.GAP:
            self.gap(at)

    def gap(self, at: int) -> None:
        if self._gap < 0:
            self._gap = at

    def cell(self, at: int) -> None:
        """Part two cells of a table, if another word follows on the line."""
        self._cell = at

    def newline(self, at: int, *, firm: bool = False) -> None:
        """End the line; an empty line, or ``firm``, parts what is before from what is after."""
        self._newlines += 1
        self._firm = self._firm or firm or self._newlines > 1 or self._alone
        self._alone = False
        self._wrapped = self._length >= WRAPPED_MIN
        self._length = 0
        self.fresh = True
        self._cell = -1
        if self._space < 0:
            self._space = at

    def stand_alone(self) -> None:
        """Part this line from the lines before and after it: a heading, an item, a row."""
        self._firm = True
        self._alone = True

    def pause(self) -> None:
        """Forget what is pending: the span before here is covered."""
        self._space = self._gap = self._cell = -1
        self._newlines = 0
        self._firm = False


def _begins_word(char: str) -> bool:
    return (char.isalnum() and not is_cjk(char)) or char == "("
