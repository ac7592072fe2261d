"""The words of a growing text, and how long each is likely to take: in syllables, roughly. Pure.

A word's units are a weighted count of its syllables, consonants and further vowels. The weights
were fitted to the word lengths of a synthesizer in seven languages (benchmarks/alignment.py says
what is left over); how long a unit takes is for the aligner to find out.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from .embedded.spans import Spans
from .segment_chars import CLAUSE_MARKS, SCRIPT_CLAUSE_MARKS, SCRIPT_TERMINALS, TERMINALS, unspaced

SYLLABLE = 0.43
CONSONANT = 0.35
VOWEL = 0.24
"""A vowel beside another one."""
DIGIT = 2.0
"""A number is read in words of about two syllables a digit."""
SPELT = 1.2
"""A letter said by its name."""
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
"""Seconds a unit by language, before anything was heard; of the order of the rates of syllables
that studies of read speech give (5 a second in Mandarin, 6 in English, 7 to 8 in Spanish)."""
_USUAL_UNIT_S = 0.165


def usual_unit_s(language: str | None) -> float:
    """Seconds that a unit usually takes in a language."""
    return _UNIT_S.get((language or "").partition("-")[0].lower(), _USUAL_UNIT_S)


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A word of the text."""

    start: int
    """First code point."""
    end: int
    """Code point after it."""
    units: float
    """How long it is, at least a little."""
    stop: int
    """What stands between it and the next word: 0 nothing, 1 a comma, 2 the end of a sentence."""


class SpokenWords:
    """The words of a text that may grow at its end."""

    def __init__(self, text: str = "", *, ended: bool = False, language: str | None = None) -> None:
        self.words: list[SpokenWord] = []
        """Those that no later text can change."""
        self.ended = False
        self._text = ""
        self._language = language
        self._from = 0
        """Where the first word that is not certain begins."""
        self.append(text)
        if ended:
            self.end()

    def append(self, text: str) -> None:
        """More text."""
        if text and not self.ended:
            self._text += text
            # The last word may go on, and what parts it from the next is not known.
            self._take(leave=1)

    def end(self) -> None:
        """No more text."""
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
    for span in Spans(part).spans:
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
    """Whether two spans are one word: ``well-known``, but not two characters of Chinese."""
    between = text[end:start]
    if any(char.isspace() or char in _STRONG or char in _WEAK for char in between):
        return False
    return not (unspaced(text[end - 1]) or unspaced(text[start]))


def _stop(between: str) -> int:
    if any(char in _STRONG for char in between):
        return 2
    return 1 if any(char in _WEAK for char in between) else 0


def units_of(word: str, language: str | None = None) -> float:
    """How long a word is, in units of about a syllable."""
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
