"""UTF-16 surrogate halves joined across pieces of text.

Models that write byte-wise or in UTF-16 may cut a character between two pieces; Python does not
join its halves when the pieces are joined. One that stays alone becomes U+FFFD (Unicode 16,
section 3.9).
"""

from __future__ import annotations

import re

REPLACEMENT = "\ufffd"
_HALF = re.compile("[\ud800-\udfff]")


class WholeCharacters:
    """Joins surrogate halves and locates each character in the original text."""

    def __init__(self) -> None:
        self._high = ""
        self.position = 0
        """Code points read so far."""

    @property
    def held(self) -> bool:
        """Whether a half is waiting for the next piece."""
        return bool(self._high)

    def push(self, text: str) -> tuple[str, list[int]]:
        """Take some more text.

        Returns:
            The characters that are complete, and their positions in code points of the original:
            one for each, and one for their end.
        """
        begin = self.position - len(self._high)
        self.position += len(text)
        text = self._high + text
        self._high = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._high, text = text[-1], text[:-1]
        if _HALF.search(text) is None:
            return text, list(range(begin, begin + len(text) + 1))
        edges = [begin]
        chars = clean(text)
        for char in chars:
            edges.append(edges[-1] + 1 + (char > "\uffff" and text[edges[-1] - begin] <= "\uffff"))
        return chars, edges

    def flush(self) -> tuple[str, list[int]]:
        """Return the half that stayed alone, as `push` does."""
        begin = self.position - len(self._high)
        half, self._high = self._high, ""
        return (REPLACEMENT, [begin, self.position]) if half else ("", [begin])


class SurrogateJoiner:
    """Joins surrogate halves across pieces of text."""

    def __init__(self) -> None:
        self._whole = WholeCharacters()

    @property
    def held(self) -> bool:
        """Whether a half is waiting for the next piece."""
        return self._whole.held

    def push(self, text: str) -> str:
        """Return the next piece without lone halves."""
        return self._whole.push(text)[0]

    def finish(self) -> str:
        """Return U+FFFD for a half that stayed alone at the end."""
        return self._whole.flush()[0]


def clean(text: str) -> str:
    """Join pairs of halves and replace lone ones by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
