"""Text of a request, cut into pieces of bounded sound."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from qwen3tts_text.characters import joins_previous, unspaced
from qwen3tts_wire.errors import BadText, LimitExceeded

PIECE_COST = 300
"""Most of ``cost`` in one piece: about 30 s of sound at the usual speed."""
SENTENCE_ENDS = frozenset(".!?…。！？｡।॥؟۔\n")  # noqa: RUF001
CLAUSE_ENDS = frozenset(",;:，、；：،؛—–")  # noqa: RUF001
_CLOSERS = frozenset("\"'”’»)]}」』）】")  # noqa: RUF001
_NOT_TEXT = re.compile("[\\x00-\\x08\\x0e-\\x1b\\ud800-\\udfff]")


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Part of a text that is spoken in one go."""

    start: int
    """Beginning in the text, code points."""
    text: str
    pause: bool
    """True if the pause that its punctuation asks for follows."""


def check_text(text: str, max_chars: int) -> None:
    """Refuse invalid or too long text.

    Raises:
        LimitExceeded: more than ``max_chars`` code points.
        BadText: half a surrogate pair, U+0000 or another control character; says where.
    """
    if len(text) > max_chars:
        raise LimitExceeded(
            f"The text has {len(text)} characters; one request may have {max_chars}.",
            remedy="Send it in segments.",
        )
    if (found := _NOT_TEXT.search(text)) is None:
        return
    code, position = ord(found[0]), found.start()
    if code >= 0xD800:
        raise BadText(
            f"Half a surrogate pair (U+{code:04X}) at position {position}.",
            remedy="Join both halves before the text is sent; a character must stay whole.",
        )
    raise BadText(
        f"A control character (U+{code:04X}) at position {position}.",
        remedy="Send text, not binary data.",
    )


def plain(text: str) -> str:
    """Replace characters unfit for a library by white space, one each."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(" " if _unfit(char) else char for char in text)


def pieces(text: str, *, final: bool) -> Iterator[TextPiece]:
    """Cut a text into pieces of at most PIECE_COST, at sentences, clauses or words.

    ``final`` leaves out the pause at the very end.
    """
    start = 0
    while start < len(text):
        end = _reach(text, start)
        if end < len(text):
            end = _best_cut(text, start, end)
        part = text[start:end]
        is_last = end == len(text)
        yield TextPiece(start, part, _ends_in_pause(part) and not (is_last and final))
        start = end


def cost(char: str) -> int:
    """Return a character's duration in letters: a digit counts a word, a symbol a name."""
    if char.isascii():
        if char.isalpha() or char.isspace():
            return 1
        return 6 if char.isdigit() else 3
    if unspaced(char):
        return 5
    return 1 if unicodedata.category(char)[0] in "LMZP" else 15


def _unfit(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cn", "Co", "Cs") and char not in "\t\n"


def _reach(text: str, start: int) -> int:
    left = PIECE_COST
    for at in range(start, len(text)):
        left -= cost(text[at])
        if left < 0 and at > start:
            return at
    return len(text)


def _best_cut(text: str, start: int, end: int) -> int:
    floor = start + (end - start) // 3
    for ends in (SENTENCE_ENDS, CLAUSE_ENDS, None):
        for at in range(end - 1, floor, -1):
            if ends is None:
                if text[at].isspace():
                    return at + 1
            elif text[at - 1] in ends and (text[at].isspace() or unspaced(text[at - 1])):
                return at
    while end - 1 > start and joins_previous(text[end]):
        end -= 1
    return end


def _ends_in_pause(part: str) -> bool:
    for char in reversed(part):
        if char in SENTENCE_ENDS or char in CLAUSE_ENDS:
            return True
        if not (char.isspace() or char in _CLOSERS):
            return False
    return False
