"""Sentence and clause ends, by a character and its neighbours."""

# Look-alike characters are meant.
# ruff: noqa: RUF001

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from qwen3tts_text import boundary_words as words
from qwen3tts_text.characters import (
    CLAUSE_MARKS,
    CLOSERS,
    DASHES,
    OPENERS,
    SCRIPT_CLAUSE_MARKS,
    SCRIPT_TERMINALS,
    SURE_CLOSERS,
    TERMINALS,
    is_cjk,
    spaces_part_phrases,
    weight,
)

RUN_MAX = 16
"""Marks in a row that are taken as one."""
WORD_MAX = 24
"""Characters of the next word that are looked at."""
TOKEN_MAX = 40
"""Characters before a dot that are looked at."""

TRIGGERS = (
    TERMINALS | SCRIPT_TERMINALS | CLAUSE_MARKS | SCRIPT_CLAUSE_MARKS | DASHES | frozenset("\n ")
)
"""Characters at which something may end."""

ITEM_DIGITS = 3
"""Digits of a number that may count the items of a list."""
_BEFORE_ITEM = TERMINALS | SCRIPT_TERMINALS | CLAUSE_MARKS | SCRIPT_CLAUSE_MARKS | frozenset("\n")
_AFTER_CLOSER = frozenset(" \n") | CLAUSE_MARKS | TERMINALS
_ACRONYM = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]")


class Strength(IntEnum):
    NONE = 0
    CLAUSE = 1
    SENTENCE = 2


class Boundary(NamedTuple):
    """Cut before ``cut``; ``resume`` is the next character to judge."""

    strength: Strength
    cut: int
    resume: int


class BoundaryRules:
    def __init__(self, language: str | None = None) -> None:
        """``language`` is a BCP 47 tag, or None."""
        primary = (language or "").lower().replace("_", "-").partition("-")[0]
        self._ordinals = primary in words.ORDINAL_LANGUAGES
        self._greek = primary == "el"

    def judge(self, text: Sequence[str], at: int, closing: bool) -> Boundary | None:
        """Judge ``text[at]``, of ``TRIGGERS``; None asks for more characters."""
        mark = text[at]
        if mark == " ":
            return self._space(text, at, closing)
        if mark == "\n":
            return Boundary(Strength.SENTENCE, at, at + 1)
        if mark in DASHES:
            return self._dash(text, at, closing)
        if mark in CLAUSE_MARKS or mark in SCRIPT_CLAUSE_MARKS:
            return self._clause(text, at, closing)
        return self._terminal(text, at, closing)

    def _space(self, text: Sequence[str], at: int, closing: bool) -> Boundary | None:
        if not at or not spaces_part_phrases(text[at - 1]):
            return Boundary(Strength.NONE, at, at + 1)
        if at + 1 == len(text):
            return Boundary(Strength.NONE, at, at + 1) if closing else None
        parts = spaces_part_phrases(text[at + 1])
        return Boundary(Strength.CLAUSE if parts else Strength.NONE, at, at + 1)

    def _dash(self, text: Sequence[str], at: int, closing: bool) -> Boundary | None:
        end = at + 1
        while end < len(text) and text[end] in DASHES and end - at < RUN_MAX:
            end += 1
        none = Boundary(Strength.NONE, end, end)
        before = text[at - 1] if at else ""
        long = text[at] in "—―" or end - at > 1
        if not long and before not in (" ", "\n"):
            return none
        if end == len(text):
            return none if closing else None
        after = text[end]
        if after == " ":
            if end + 1 == len(text):
                return none if closing else None
            after = text[end + 1]
        elif not long:
            return none
        left = at - 2 if before == " " else at - 1
        number = left >= 0 and text[left].isdigit()
        if left < 0 or (number and after.isdigit()) or not (after.isalnum() or after in OPENERS):
            return none
        return Boundary(Strength.CLAUSE, end, end)

    def _clause(self, text: Sequence[str], at: int, closing: bool) -> Boundary | None:
        mark = text[at]
        end = self._run_end(text, at)
        none = Boundary(Strength.NONE, end, end)
        if end == len(text):
            return none if closing else None
        before = text[at - 1] if at else " "
        after = text[end]
        if after == "\n" or after in TERMINALS or after in SCRIPT_TERMINALS:
            return none
        if mark in SCRIPT_CLAUSE_MARKS:
            number = before.isdigit() and after.isdigit()
            number = number or (mark == "、" and self._is_item(text, at))
            return none if number else Boundary(Strength.CLAUSE, end, end)
        if after != " ":
            apart = is_cjk(after) or is_cjk(before)
            return Boundary(Strength.CLAUSE, end, end) if apart and mark != ":" else none
        if end + 1 == len(text):
            return Boundary(Strength.CLAUSE, end, end) if closing else None
        if before.isdigit() and text[end + 1].isdigit():
            return none
        if mark == ";" and (self._greek or "\u0370" <= before <= "\u03ff"):
            return Boundary(Strength.SENTENCE, end, end)
        return Boundary(Strength.CLAUSE, end, end)

    def _terminal(self, text: Sequence[str], at: int, closing: bool) -> Boundary | None:
        end = self._run_end(text, at)
        none = Boundary(Strength.NONE, end, end)
        sentence = Boundary(Strength.SENTENCE, end, end)
        if end == len(text) and end - at < RUN_MAX:
            return sentence if closing else None
        if end == len(text):
            return sentence
        marks = [char for char in text[at:end] if char in TERMINALS or char in SCRIPT_TERMINALS]
        before = text[at - 1] if at else " "
        after = text[end]
        if any(char in SCRIPT_TERMINALS for char in marks):
            number = before.isdigit() and after.isdigit()
            return none if number or after == "\n" else sentence
        if after != " ":
            if is_cjk(after) and not (before.isascii() and before.isalnum() and marks == ["."]):
                return sentence
            # Three dots part also where no space follows.
            pause = after.isalpha() and (marks[0] == "…" or len(marks) >= 3) and before.isalnum()
            return Boundary(Strength.CLAUSE, end, end) if pause else none
        return self._before_space(text, at, end, closing, lone=marks == ["."])

    def _before_space(
        self, text: Sequence[str], at: int, end: int, closing: bool, *, lone: bool
    ) -> Boundary | None:
        first = end + 1
        while first < len(text) and text[first] in OPENERS and first - end < RUN_MAX:
            first += 1
        if first == len(text):
            if not closing:
                return None
            return Boundary(Strength.SENTENCE, end, end)
        none = Boundary(Strength.NONE, end, end)
        passed = text[end + 1 : first]
        if passed and text[first] in _AFTER_CLOSER and SURE_CLOSERS.issuperset(passed):
            # French sets a space before its closing mark.
            end, lone = first, False
            first += text[first] == " "
            if first == len(text):
                return Boundary(Strength.SENTENCE, end, end) if closing else None
        letter = text[first]
        if not lone:
            strength = Strength.CLAUSE if letter.islower() else Strength.SENTENCE
            return Boundary(strength, end, end)
        token = self._token(text, at)
        if not token:
            return none
        verdict = self._after_dot(text, at, token, first, closing)
        return None if verdict is None else Boundary(verdict, end, end)

    def _after_dot(
        self, text: Sequence[str], at: int, token: str, first: int, closing: bool
    ) -> Strength | None:
        low = token.lower().replace("’", "'").rpartition("'")[2]
        letter = text[first]
        initial = len(low) == 1 and low.isalpha() and weight(low) == 1
        if initial and at > 3 and text[at - 2] == " " and text[at - 3] == ".":
            low = text[at - 4].lower() + "." + low  # z. B.
        if low in words.ABBREVIATIONS:
            return Strength.NONE
        numbered = low in words.BEFORE_NUMBERS or low.endswith("str")
        if numbered and (letter.isdigit() or letter == "+"):
            return Strength.NONE
        if low.isdigit():
            return self._after_number(text, at, low, first, closing)
        if low in words.HALF_DAYS and letter.isupper():
            word = self._word(text, first, closing)
            if word is None:
                return None
            return Strength.NONE if word in words.AFTER_HALF_DAYS else Strength.SENTENCE
        if initial or low in words.MAYBE_LAST or _ACRONYM.fullmatch(low):
            if letter.islower() or (letter.isdigit() and low not in words.MAYBE_LAST):
                return Strength.NONE
            return self._if_starter(text, first, closing)
        if letter.islower():
            return Strength.NONE if len(low) <= 4 else Strength.CLAUSE
        return Strength.SENTENCE

    def _after_number(
        self, text: Sequence[str], at: int, number: str, first: int, closing: bool
    ) -> Strength | None:
        begins = at - len(number)
        letter = text[first]
        if self._is_item(text, at):
            return Strength.NONE
        if letter.islower() or (letter.isdigit() and len(number) <= 2):
            return Strength.NONE
        if len(number) > 3 or letter.isdigit():
            return Strength.SENTENCE
        if self._ordinals:
            return self._if_starter(text, first, closing)
        if self._token(text, begins - 1).lower() in words.BEFORE_ORDINALS:
            return Strength.NONE
        word = self._word(text, first, closing)
        if word is None:
            return None
        return Strength.NONE if word in words.MONTHS else Strength.SENTENCE

    def _if_starter(self, text: Sequence[str], first: int, closing: bool) -> Strength | None:
        word = self._word(text, first, closing)
        if word is None:
            return None
        if len(word) == 1 and first + 1 < len(text) and text[first + 1] == ".":
            return Strength.NONE  # a second initial
        head, elided, _ = word.partition("'")
        starts = word in words.STARTERS or (elided != "" and head in words.ELIDED)
        return Strength.SENTENCE if starts else Strength.NONE

    @staticmethod
    def _word(text: Sequence[str], first: int, closing: bool) -> str | None:
        end = first
        while end < len(text) and (text[end].isalnum() or text[end] in "'’"):
            end += 1
            if end - first >= WORD_MAX:
                return ""
        if end == len(text) and not closing:
            return None
        return "".join(text[first:end]).lower().replace("’", "'")

    def _is_item(self, text: Sequence[str], at: int) -> bool:
        """Return whether an item's number ends before ``text[at]``: *do this: 1. Open it*."""
        begin = at
        while begin > 0 and text[begin - 1].isdigit() and at - begin <= ITEM_DIGITS:
            begin -= 1
        if not 1 <= at - begin <= ITEM_DIGITS:
            return False
        last = begin - 2 if begin and text[begin - 1] == " " else begin - 1
        if last < 0 or text[last] != ".":
            return last < 0 or text[last] in _BEFORE_ITEM
        token = self._token(text, last)
        if not token or token.isdigit():
            return False
        # After a sentence it is one; after *fig.* or *Dec.* it is not.
        return self._after_dot(text, last, token, begin, True) is Strength.SENTENCE

    @staticmethod
    def _token(text: Sequence[str], at: int) -> str:
        begin = at
        while begin > 0 and at - begin < TOKEN_MAX:
            char = text[begin - 1]
            if char in " \n" or (char in OPENERS and char not in "-'"):
                break
            if char in SCRIPT_TERMINALS or char in SCRIPT_CLAUSE_MARKS:
                break
            begin -= 1
        return "".join(text[begin:at])

    @staticmethod
    def _run_end(text: Sequence[str], at: int) -> int:
        script = text[at] in SCRIPT_TERMINALS or text[at] in SCRIPT_CLAUSE_MARKS
        end = at + 1
        while end < len(text) and end - at < RUN_MAX:
            char = text[end]
            if char == "“" and script:
                break  # it opens in Chinese
            if not (char in TERMINALS or char in SCRIPT_TERMINALS or char in CLOSERS):
                break
            end += 1
        return end
