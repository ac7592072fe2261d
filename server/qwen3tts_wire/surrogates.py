"""Halves of characters that arrive in two deltas."""

from __future__ import annotations


class SurrogateJoiner:
    """Joins UTF-16 halves across pieces of text; what stays alone becomes U+FFFD.

    Models that write byte-wise or in UTF-16 may cut a character outside the Basic Multilingual
    Plane between two deltas. A high half at the end of a piece is held until the next piece.
    """

    def __init__(self) -> None:
        self._held = ""

    @property
    def held(self) -> bool:
        """Whether a half is waiting for the next piece."""
        return bool(self._held)

    def push(self, text: str) -> str:
        """The next piece, free of lone surrogates."""
        text = self._held + text
        self._held = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._held, text = text[-1], text[:-1]
        return clean(text)

    def finish(self) -> str:
        """What is left at the end of the text: U+FFFD for a half that stayed alone."""
        held, self._held = self._held, ""
        return "\ufffd" if held else ""


def clean(text: str) -> str:
    """The text with pairs of halves joined and lone ones replaced by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
