"""Checks of a cloned voice's name and words. No torch."""

from __future__ import annotations

from qwen3tts_wire.errors import BadRequest, LimitExceeded

NAME_MAX = 64
"""Code points in a name."""
TRANSCRIPT_MAX = 4096
"""Code points in a transcript."""


def checked_words(words: str | None) -> str:
    """Return the words of given codes; BadRequest, LimitExceeded."""
    if not isinstance(words, str) or not words.strip():
        raise BadRequest(
            "The codes come without their words.",
            remedy="Give what is said in them as text, or the embedding without codes.",
        )
    check_length(words)
    return words.strip()


def check_length(words: str) -> None:
    """Refuse more words than a recording has; LimitExceeded."""
    if len(words) > TRANSCRIPT_MAX:
        raise LimitExceeded(
            f"ref_text has {len(words)} characters; at most {TRANSCRIPT_MAX} are taken.",
            remedy="Give the words of the recording and nothing else.",
        )


def check_name(name: str) -> None:
    """Refuse a name that cannot be shown; BadRequest."""
    if not (0 < len(name) <= NAME_MAX and name.isprintable() and name == name.strip()):
        raise BadRequest(
            "The voice's name cannot be used.",
            remedy=f"Choose 1 to {NAME_MAX} printable characters, no blanks at the ends.",
        )
