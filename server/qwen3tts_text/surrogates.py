"""UTF-16 surrogate halves joined across pieces.

Models that write byte-wise or in UTF-16 may cut a character; Python does not join its halves. A
lone one becomes U+FFFD (Unicode 16, section 3.9).
"""

from __future__ import annotations

import re

REPLACEMENT = "\ufffd"
_HALF = re.compile("[\ud800-\udfff]")


class WholeCharacters:
    """Joiner of halves that locates characters in the original."""

    def __init__(self) -> None:
        self._high = ""
        self.position = 0
        """Code points read so far."""

    @property
    def held(self) -> bool:
        return bool(self._high)

    def push(self, text: str) -> tuple[str, list[int]]:
        """Take text.

        Returns:
            Complete characters, and their positions in code points of the original: one for
                each, and
            one for their end.
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
        begin = self.position - len(self._high)
        half, self._high = self._high, ""
        return (REPLACEMENT, [begin, self.position]) if half else ("", [begin])


class SurrogateJoiner:
    def __init__(self) -> None:
        self._whole = WholeCharacters()

    @property
    def held(self) -> bool:
        return self._whole.held

    def push(self, text: str) -> str:
        return self._whole.push(text)[0]

    def finish(self) -> str:
        return self._whole.flush()[0]


def clean(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
