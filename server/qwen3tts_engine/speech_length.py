"""How long a text usually takes to be said, by its script and its syllables. Pure.

A token of a model's vocabulary says little about time: one may be a whole official name in Chinese
or a single letter. So the time is counted where it arises: a Chinese character is a syllable, a
Latin word has about as many as it has vowels, a digit is read in words, capitals are spelled.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from .segment_chars import CLAUSE_MARKS, SCRIPT_CLAUSE_MARKS, SCRIPT_TERMINALS, TERMINALS, unspaced
from .word_units import units_of, usual_unit_s

HAN_S = 0.24
"""A Chinese character (5 syllables a second are 0.2 s; read in Japanese most have two morae)."""
KANA_S = 0.13
HANGUL_S = 0.19
UNSPACED_S = 0.12
"""A letter of Thai, Lao, Khmer or Burmese: two or three are a syllable."""
DIGIT_S = 0.5
"""A digit is read in words of two to three syllables (12,345; 1997; a telephone number)."""
SPELLED_S = 0.3
"""A letter that is said by its name: a capital among capitals, a word without a vowel."""
SIGN_S = 0.6
"""A sign that is read: per cent, dollars, at, slash."""
STOP_S = 0.5
"""A pause at the end of a sentence,"""
COMMA_S = 0.25
"""and at a comma."""

_READ_SIGNS = frozenset("%&@#/\\_*+=<>|~^°§")
_STOPS = (TERMINALS | SCRIPT_TERMINALS) | frozenset(";:；：\n")  # noqa: RUF001
_COMMAS = CLAUSE_MARKS | SCRIPT_CLAUSE_MARKS | frozenset("—–…()")  # noqa: RUF001
_VOWELS = frozenset("aeiouyæøœıаеёиоуыэюяіїєαεηιουω")  # noqa: RUF001


@lru_cache(maxsize=256)
def usual_s(text: str, language: str | None = None) -> float:
    """Seconds in which the text is usually said, its pauses included.

    Args:
        text: as it is given to the model.
        language: BCP 47 tag, for the rate of spaced scripts; None: one that suits most.
    """
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
    """Seconds of a character that counts by itself; None: it is a letter or mark of a word."""
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
