"""Words and their expected duration, in syllable-like units and seconds.

Units are a weighted count of syllables, consonants and further vowels, fitted to a synthesizer's
words in seven languages (benchmarks/alignment.py). A model's tokens say little about time: one may
be a whole official name in Chinese or a single letter.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache

from qwen3tts_text.characters import (
    CLAUSE_MARKS,
    SCRIPT_CLAUSE_MARKS,
    SCRIPT_TERMINALS,
    TERMINALS,
    joins_previous,
    unspaced,
)

_NUMBER = re.compile(r"\d+(?:[.,:٫٬]\d+)*")  # noqa: RUF001 - Arabic separators too
_APOSTROPHES = "'’ʼ"  # noqa: RUF001


@dataclass(frozen=True, slots=True)
class WordSpan:
    start: int
    end: int
    is_word: bool
    """Letters or digits, which are always spoken; else a symbol or punctuation."""


class WordSpans:
    """Words, whole numbers and single symbols of a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.spans = _spans(text)
        self._starts = [span.start for span in self.spans]

    def __len__(self) -> int:
        return len(self.spans)

    def at(self, position: int) -> int | None:
        index = bisect_right(self._starts, position) - 1
        if index >= 0 and position < self.spans[index].end:
            return index
        return None

    def after(self, position: int) -> int | None:
        index = bisect_right(self._starts, position - 1)
        return index if index < len(self.spans) else None

    def words(self, first: int, following: int) -> list[tuple[int, int]]:
        """Return the words of an event at span ``first``, up to ``following``."""
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


def _spans(text: str) -> list[WordSpan]:
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
        found.append(WordSpan(at, end, is_word))
        at = end
    return found


def _one(text: str, at: int) -> tuple[int, bool]:
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
    char = text[at]
    if char in _APOSTROPHES:
        return at + 1 < len(text) and text[at + 1].isalpha()
    return (char.isalpha() and not unspaced(char)) or joins_previous(char)


def _is_regional(char: str) -> bool:
    return 0x1F1E6 <= ord(char) <= 0x1F1FF


SYLLABLE = 0.43
CONSONANT = 0.35
VOWEL = 0.24
"""A vowel beside another one."""
DIGIT = 2.0
"""A number is read in words of about two syllables a digit."""
SPELT = 1.2
"""A letter spelled out."""
SYMBOL = 2.0
"""A sign that is read: per cent, dollars."""
OTHER_LETTER = 0.5
"""A letter of a script whose syllables are not counted here."""

# Letters that look alike are meant.
_VOWELS = frozenset("aeiouyæøœıаеёиоуыэюяіїєαεηιουω")  # noqa: RUF001
_SMALL_KANA = frozenset("ぁぃぅぇぉゃゅょゎァィゥェォャュョヮ")
_ONE_SOUND = re.compile(r"sch|[cstpgk]h|ck|qu|([b-df-hj-np-tv-zбвгджзйклмнпрстфхцчшщ])\1")  # noqa: RUF001
"""Letters that are one consonant together."""
_MUTE_E = re.compile(r"(?<=[aeiouy])(.*[^aeiouyl])e(s?)$")
_MUTE_ED = re.compile(r"(?<=[aeiouy])(.*[^aeiouytd])ed$")
_STRONG = (TERMINALS | SCRIPT_TERMINALS | frozenset(";:；：\n")) - frozenset("…")  # noqa: RUF001
_WEAK = CLAUSE_MARKS | SCRIPT_CLAUSE_MARKS | frozenset("—–…()[]（）「」«»")  # noqa: RUF001

_UNIT_S = {
    "zh": 0.21,
    "cmn": 0.21,
    "yue": 0.21,
    "ja": 0.13,
    "ko": 0.16,
    "es": 0.14,
    "it": 0.15,
    "fr": 0.145,
}
"""Seconds a unit by language, before any measurement; of the order of the rates of syllables
that studies of read speech give (5 a second in Mandarin, 6 in English, 7 to 8 in Spanish)."""
_USUAL_UNIT_S = 0.165


def usual_unit_s(language: str | None) -> float:
    return _UNIT_S.get((language or "").partition("-")[0].lower(), _USUAL_UNIT_S)


@dataclass(frozen=True, slots=True)
class SpokenWord:
    start: int
    """First code point."""
    end: int
    """Code point after it."""
    units: float
    """Length, above 0."""
    stop: int
    """Stop before the next word: 0 nothing, 1 a comma, 2 the end of a sentence."""


class SpokenWords:
    def __init__(self, text: str = "", *, ended: bool = False, language: str | None = None) -> None:
        self.words: list[SpokenWord] = []
        """Words that no later text can change."""
        self.ended = False
        self._text = ""
        self._language = language
        self._from = 0
        """Beginning of the first uncertain word."""
        self.append(text)
        if ended:
            self.end()

    def append(self, text: str) -> None:
        if text and not self.ended:
            self._text += text
            # The last word may go on, and what parts it from the next is not known.
            self._take(leave=1)

    def end(self) -> None:
        if not self.ended:
            self.ended = True
            self._take(leave=0)

    def _take(self, leave: int) -> None:
        found = _words(self._text, self._from, self._language)
        keep = len(found) - leave
        if keep > 0:
            self.words += found[:keep]
            self._from = found[keep].start if leave else len(self._text)


def _words(text: str, begin: int, language: str | None) -> list[SpokenWord]:
    part = text[begin:]
    groups: list[list[int]] = []
    symbols: dict[int, int] = {}
    for span in WordSpans(part).spans:
        if not span.is_word:
            sign = part[span.start]
            if sign in "%&@#" or unicodedata.category(sign) in ("Sc", "Sm", "So"):
                symbols[len(groups)] = symbols.get(len(groups), 0) + 1
            continue
        if groups and _hang_together(part, groups[-1][1], span.start):
            groups[-1][1] = span.end
        else:
            groups.append([span.start, span.end])
    found = []
    for index, (start, end) in enumerate(groups):
        following = groups[index + 1][0] if index + 1 < len(groups) else len(part)
        # A sign is read after the word before it; at the very start, before the first.
        signs = symbols.get(index + 1, 0) + (symbols.get(0, 0) if index == 0 else 0)
        units = max(0.3, units_of(part[start:end], language) + SYMBOL * signs)
        stop = _stop(part[end:following])
        found.append(SpokenWord(begin + start, begin + end, units, stop))
    return found


def _hang_together(text: str, end: int, start: int) -> bool:
    between = text[end:start]
    if any(char.isspace() or char in _STRONG or char in _WEAK for char in between):
        return False
    return not (unspaced(text[end - 1]) or unspaced(text[start]))


def _stop(between: str) -> int:
    if any(char in _STRONG for char in between):
        return 2
    return 1 if any(char in _WEAK for char in between) else 0


def units_of(word: str, language: str | None = None) -> float:
    letters = "".join(
        unicodedata.normalize("NFD", char)[0].lower()
        for char in word
        if char.isalpha() and char not in "ьъЬЪ"
    )
    if 2 <= len(letters) <= 4 and word.isupper() and word.isascii():
        return SPELT * len(letters)
    units = DIGIT * sum(char.isdigit() for char in word)
    tongue = (language or "").partition("-")[0].lower()
    if tongue in ("en", "fr"):
        letters = _MUTE_E.sub(r"\1\2", letters)
    if tongue == "en":
        letters = _MUTE_ED.sub(r"\1d", letters).replace("ght", "t")
    vowel_before = False
    for char in _ONE_SOUND.sub("k", letters):
        if unspaced(char) or "\uac00" <= char <= "\ud7a3" or "\u1100" <= char <= "\u11ff":
            units += 0.0 if char in _SMALL_KANA else 1.0
            vowel_before = False
        elif char in _VOWELS:
            units += VOWEL if vowel_before else SYLLABLE
            vowel_before = True
        elif char.isascii() or "\u0370" <= char <= "\u052f":
            units += CONSONANT
            vowel_before = False
        else:
            units += OTHER_LETTER
    return units


HAN_S = 0.24
"""A Chinese character (5 syllables a second are 0.2 s; read in Japanese most have two morae)."""
KANA_S = 0.13
HANGUL_S = 0.19
UNSPACED_S = 0.12
"""A letter of Thai, Lao, Khmer or Burmese: two or three are a syllable."""
DIGIT_S = 0.5
"""A digit is read in words of two to three syllables (12,345; 1997; a telephone number)."""
SPELLED_S = 0.3
"""A letter that is spelled out: a capital among capitals, a word without a vowel."""
SIGN_S = 0.6
"""A sign that is read: per cent, dollars, at, slash."""
STOP_S = 0.5
"""A pause at the end of a sentence,"""
COMMA_S = 0.25
"""and at a comma."""

_READ_SIGNS = frozenset("%&@#/\\_*+=<>|~^°§")
_STOPS = (TERMINALS | SCRIPT_TERMINALS) | frozenset(";:；：\n")  # noqa: RUF001
_COMMAS = CLAUSE_MARKS | SCRIPT_CLAUSE_MARKS | frozenset("—–…()")  # noqa: RUF001


@lru_cache(maxsize=256)
def usual_s(text: str, language: str | None = None) -> float:
    """Return a text's usual duration in seconds, with pauses."""
    unit_s = max(usual_unit_s(language), usual_unit_s(None))
    seconds = 0.0
    word = ""
    for index, char in enumerate(text + " "):
        category = unicodedata.category(char)
        by_itself = _character_s(char, category, text[index + 1 : index + 2])
        if by_itself is None:
            if category[0] != "M":
                word += char
            continue
        if word:
            seconds += _word_s(word, language, unit_s)
            word = ""
        seconds += by_itself
    return seconds


def _character_s(char: str, category: str, following: str) -> float | None:
    if category in ("Nd", "No", "Nl"):
        return DIGIT_S
    if category[0] in "LM":
        if not unspaced(char):
            return HANGUL_S if "\uac00" <= char <= "\ud7a3" else None
        if category[0] == "M":
            return 0.0
        if "\u3040" <= char <= "\u30ff" or "\uff66" <= char <= "\uff9f":
            return KANA_S
        return HAN_S if char >= "\u2e80" else UNSPACED_S
    if char in _READ_SIGNS or category in ("Sc", "Sm", "So"):
        return SIGN_S
    if following and not following.isspace() and following.isalnum() and char in ".:,-":
        # Within an address, a time or a number: said as a word, or not at all.
        return 0.0 if char in ",-" else SIGN_S / 2
    if char in _STOPS:
        return STOP_S
    return COMMA_S if char in _COMMAS else 0.0


def _word_s(word: str, language: str | None, unit_s: float) -> float:
    bare = "".join(unicodedata.normalize("NFD", char)[0].lower() for char in word)
    cased = any(char.lower() != char.upper() for char in word)
    spelled = cased and (
        (len(word) > 1 and word.isupper() and len(word) <= 6)
        or not any(char in _VOWELS for char in bare)
    )
    return SPELLED_S * len(word) if spelled else unit_s * units_of(word, language)
