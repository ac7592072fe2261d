"""Character classes by code point.

Ranges are of Unicode 16 (emoji-data.txt with the symbol blocks around it, Scripts.txt).
"""

# Look-alike characters are the subject of this file.
# ruff: noqa: RUF001

from __future__ import annotations

import unicodedata
from enum import Enum, auto
from functools import lru_cache

TERMINALS = frozenset(".!?…‼⁇⁈⁉")
"""End a sentence where white space follows."""
SCRIPT_TERMINALS = frozenset("。！？｡．।॥؟۔։።፧፨။។៕།༎᙮܀܁܂\u037e")
"""End a sentence whatever follows: CJK, Indic, Arabic, Armenian, Ethiopic, Burmese, Khmer, …"""
CLAUSE_MARKS = frozenset(",;:")
"""End a clause where white space or a letter of a script without spaces follows."""
SCRIPT_CLAUSE_MARKS = frozenset("，、；：､،؛፣፤፥၊·\u0387") - frozenset("·")
"""End a clause whatever follows."""
DASHES = frozenset("—―–-")
"""May end a clause; the last two only between spaces."""
CLOSERS = frozenset("\"'”’»›)]}」』）］｝】》〉〕〗｠“")
"""Stay with the sentence that they close."""
SURE_CLOSERS = frozenset("”»›)]}」』）］｝】》〉〕〗｠")
"""Close also after a space, if they do not open (``»`` does in German)."""
OPENERS = frozenset("\"'“‘„‚«‹»›([{「『（［｛【《〈〔〖¿¡-–—")
"""May stand before the first letter of a sentence."""
PAUSES = TERMINALS | SCRIPT_TERMINALS | CLAUSE_MARKS | SCRIPT_CLAUSE_MARKS | DASHES
"""Marks at which a voice pauses."""
STRAY_AT_START = frozenset(".!?…,;:)]}”’»›") | SCRIPT_TERMINALS | SCRIPT_CLAUSE_MARKS
"""Say nothing where a segment begins."""
WHITE_SPACE = frozenset(
    " \t\n\v\f\r\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000"
) | {chr(code) for code in range(0x2000, 0x200B)}

# Thai to Tibetan, Burmese, Khmer, CJK with its marks, full-width forms, the ideographs beyond the
# first plane. Korean has spaces.
UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3001-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff65\U00020000-\U0003ffff"
)
"""Scripts without spaces between their words, as the inside of a regular expression's set. A
character of theirs says something as soon as it is there."""
_EMOJI = (
    (0x2190, 0x21FF),  # arrows
    (0x2300, 0x23FF),  # technical: watch, hourglass, media buttons
    (0x2500, 0x27BF),  # box drawing, shapes, symbols, dingbats
    (0x27F0, 0x27FF),  # long arrows
    (0x2900, 0x297F),
    (0x2B00, 0x2BFF),
    (0x3030, 0x3030),
    (0x303D, 0x303D),
    (0xFFFC, 0xFFFD),  # object replacement, replacement character
    (0x1F000, 0x1FBFF),  # tiles, cards, flags, pictographs, skin tones, legacy symbols
)
_INVISIBLE = (
    (0x00AD, 0x00AD),  # soft hyphen
    (0x061C, 0x061C),
    (0x180B, 0x180F),
    (0x200E, 0x200F),  # marks, embeddings and isolates of the bidirectional algorithm
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x20E3, 0x20E3),  # the key of a keycap: its digit stays
    (0xFE00, 0xFE0F),  # variation selectors
    (0xFEFF, 0xFEFF),
    (0xFFF9, 0xFFFB),
    (0xE0000, 0xE0FFF),  # tags, further variation selectors
)
_NO_SPACES = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x0F00, 0x0FFF),  # Tibetan
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
)
_WEIGHTS = (
    (0x1100, 0x11FF, 2),  # Hangul letters
    (0x3000, 0x303F, 2),  # CJK marks
    (0x3040, 0x30FF, 2),  # kana: one mora
    (0x3105, 0x318F, 2),
    (0x31F0, 0x31FF, 2),
    (0x3400, 0x4DBF, 3),  # Han: one syllable
    (0x4E00, 0x9FFF, 3),
    (0xAC00, 0xD7A3, 3),  # Hangul syllables
    (0xF900, 0xFAFF, 3),
    (0xFF01, 0xFF0F, 2),
    (0xFF1A, 0xFF20, 2),
    (0xFF66, 0xFF9D, 2),
    (0x20000, 0x3FFFF, 3),
)


class Voiced(Enum):
    """Effect of a character in speech."""

    KEPT = auto()
    DROPPED = auto()
    """Takes no room: the characters beside it touch."""
    GAP = auto()
    """Parts the words beside it."""


def _within(code: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(low <= code <= high for low, high in ranges)


@lru_cache(4096)
def voiced(char: str) -> Voiced:
    code = ord(char)
    if code < 0x80:
        return Voiced.KEPT if 0x20 < code < 0x7F else Voiced.GAP
    if _within(code, _INVISIBLE):
        return Voiced.DROPPED
    if _within(code, _EMOJI) or code == 0x200B or code & 0xFFFE == 0xFFFE:
        return Voiced.GAP
    # Controls, surrogates and private characters say nothing; unassigned ones may be letters of a
    # later Unicode.
    if unicodedata.category(char) in ("Cc", "Cs", "Co") or 0xFDD0 <= code <= 0xFDEF:
        return Voiced.GAP
    return Voiced.KEPT


@lru_cache(4096)
def weight(char: str) -> int:
    """Return a character's amount of speech; 1 is an alphabet's letter."""
    code = ord(char)
    if code < 0x1100:
        return 1
    for low, high, value in _WEIGHTS:
        if low <= code <= high:
            return value
    return 1


def is_cjk(char: str) -> bool:
    code = ord(char)
    return 0x3040 <= code <= 0x9FFF or 0xF900 <= code <= 0xFAFF or 0x20000 <= code <= 0x3FFFF


def spaces_part_phrases(char: str) -> bool:
    return _within(ord(char), _NO_SPACES)


def can_part(before: str, after: str) -> bool:
    if after.isascii():
        return True
    if unicodedata.category(after)[0] == "M" or after in "\u200c\u200d\u0e33\u0eb3":
        return False
    if before in "\u200c\u200d" or "\u0e40" <= before <= "\u0e44" or "\u0ec0" <= before <= "\u0ec4":
        return False
    if "\u1160" <= after <= "\u11ff":
        return False  # a vowel or final letter of Hangul
    if "\u1100" <= before <= "\u115f":
        return not ("\u1100" <= after <= "\u115f" or "\uac00" <= after <= "\ud7a3")
    # Tamil shows its virama as a dot and builds next to no conjuncts.
    return unicodedata.combining(before) != 9 or before == "\u0bcd"


def unspaced(char: str) -> bool:
    code = ord(char)
    return (
        0x0E00 <= code <= 0x0EFF
        or 0x1000 <= code <= 0x109F
        or 0x1780 <= code <= 0x17FF
        or 0x2E80 <= code <= 0xA4CF
        or 0xF900 <= code <= 0xFAFF
        or 0xFF66 <= code <= 0xFF9F
        or 0x20000 <= code <= 0x3FFFF
    )


def joins_previous(char: str) -> bool:
    """Return whether it joins the character before: marks, joiners, emoji modifiers."""
    if char.isascii():
        return False
    return (
        unicodedata.category(char)[0] == "M"
        or char in "\u200c\u200d"
        or 0x1F3FB <= ord(char) <= 0x1F3FF
    )
