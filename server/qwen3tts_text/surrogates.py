"""UTF-16 surrogate halves joined across pieces of text."""

from __future__ import annotations

from collections.abc import Callable

REPLACEMENT = "\ufffd"
"""Stands for half a pair that stays alone (Unicode 16, section 3.9, U+FFFD substitution)."""


class WholeCharacters:
    """Hands each character to ``sink`` with its span in code points, surrogate halves joined."""

    def __init__(self, sink: Callable[[str, int, int], None]) -> None:
        self._sink = sink
        self._high = ""
        self.position = 0
        """Code points read so far."""

    def feed(self, char: str) -> None:
        at = self.position
        self.position = at + 1
        if not self._high and not "\ud800" <= char <= "\udfff":
            self._sink(char, at, at + 1)
        elif self._high and "\udc00" <= char <= "\udfff":
            code = 0x10000 + ((ord(self._high) - 0xD800) << 10) + ord(char) - 0xDC00
            self._high = ""
            self._sink(chr(code), at - 1, at + 1)
        else:
            self._end_half(at)
            if "\ud800" <= char <= "\udbff":
                self._high = char
            else:
                self._sink(char if char < "\ud800" or char > "\udfff" else REPLACEMENT, at, at + 1)

    def flush(self) -> None:
        self._end_half(self.position)

    def _end_half(self, at: int) -> None:
        if self._high:
            self._high = ""
            self._sink(REPLACEMENT, at - 1, at)


class SurrogateJoiner:
    """Joins UTF-16 halves across pieces of text; one that stays alone becomes U+FFFD.

    Models that write byte-wise or in UTF-16 may cut a character between two deltas. A high half at
    the end of a piece is held until the next piece.
    """

    def __init__(self) -> None:
        self._held = ""

    @property
    def held(self) -> bool:
        return bool(self._held)

    def push(self, text: str) -> str:
        """Return the next piece without lone surrogates."""
        text = self._held + text
        self._held = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._held, text = text[-1], text[:-1]
        return clean(text)

    def finish(self) -> str:
        """Return U+FFFD for a half that stayed alone at the end."""
        held, self._held = self._held, ""
        return "\ufffd" if held else ""


def clean(text: str) -> str:
    """Join pairs of halves and replace lone ones by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
