"""Texts of consecutive pieces of speech, as one (pure)."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from qwen3tts_phone.recognise.base import Transcript

_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "IDEOGRAPHIC")
"""How Unicode's names of characters of scripts begin that put no blanks between words."""


def joined(parts: Sequence[Transcript]) -> Transcript:
    """One transcript of all, in order; the language is that of the longest text."""
    text = ""
    for part in parts:
        piece = part.text.strip()
        blank = " " if text and piece and not (_unspaced(text[-1]) or _unspaced(piece[0])) else ""
        text += blank + piece
    spoken = [part for part in parts if part.text.strip()]
    language = max(spoken, key=lambda part: len(part.text)).language if spoken else ""
    sure = [part.confidence for part in spoken if part.confidence is not None]
    return Transcript(text, language, min(sure) if sure and len(sure) == len(spoken) else None)


def _unspaced(char: str) -> bool:
    return unicodedata.name(char, "").startswith(_UNSPACED)
