"""Code points to characters: the two halves of a surrogate pair are one character."""

from __future__ import annotations

from collections.abc import Callable

REPLACEMENT = "\ufffd"
"""Stands for half a pair that stays alone (Unicode 16, section 3.9, U+FFFD substitution)."""


class WholeCharacters:
    """Hands each character on to ``sink`` with its span in code points.

    A text that was cut into UTF-16 pieces holds the halves of a character one after the other;
    Python does not join them when the pieces are joined.
    """

    def __init__(self, sink: Callable[[str, int, int], None]) -> None:
        self._sink = sink
        self._high = ""
        self.position = 0
        """Code points read so far."""

    def feed(self, char: str) -> None:
        """Read one code point."""
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
        """Half a pair that waits for the other stays alone."""
        self._end_half(self.position)

    def _end_half(self, at: int) -> None:
        if self._high:
            self._high = ""
            self._sink(REPLACEMENT, at - 1, at)
