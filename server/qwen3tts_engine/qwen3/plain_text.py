"""Text as it arrives, made fit to be cut into tokens: whole characters, NFC, bounded runs.

Every character that comes out knows how much of the text given has been read with it. What comes
out does not depend on how the text was split.
"""

from __future__ import annotations

import unicodedata

from qwen3tts_wire.errors import BadText

MARKS = 30
"""Combining marks that one character may bear; more are left out (UAX 15, section 13: the
Stream-Safe Text Format)."""
BLANKS = 64
"""White space in a row; more is left out."""


class PlainText:
    """Normalizes a growing text.

    ``chars`` with ``ends`` is what is final and not yet taken; ``ends[i]`` counts the code points
    given up to and including ``chars[i]``. The last character given stays back as long as a mark
    may still join it.
    """

    def __init__(self) -> None:
        self.chars = ""
        self.ends: list[int] = []
        self._read = 0
        self._high = ""
        self._atom = ""
        self._atom_ends: list[int] = []
        self._blanks = 0

    @property
    def tail(self) -> str:
        """What is not final yet, as it would be if nothing came."""
        return unicodedata.normalize("NFC", self._atom)

    def push(self, text: str) -> None:
        """Read more.

        Raises:
            BadText: half a surrogate pair stands alone; says where.
        """
        for char in text:
            self._read += 1
            if self._high or "\ud800" <= char <= "\udfff":
                char = self._pair(char)
                if not char:
                    continue
            self._blanks = self._blanks + 1 if char.isspace() else 0
            if self._blanks > BLANKS or not self._joins(char):
                continue
            if self._atom and _begins(char):
                self._finish_atom()
            self._atom += char
            self._atom_ends.append(self._read)

    def end(self) -> None:
        """Nothing more comes: all of it is final.

        Raises:
            BadText: half a surrogate pair was the last thing read.
        """
        if self._high:
            self._refuse(self._read - 1)
        self._finish_atom()

    def take(self, count: int) -> None:
        """The first ``count`` of ``chars`` are used up."""
        self.chars = self.chars[count:]
        del self.ends[:count]

    def _pair(self, char: str) -> str:
        """The character of a surrogate pair; nothing while its other half is awaited."""
        if not self._high:
            if char >= "\udc00":
                self._refuse(self._read - 1)
            self._high = char
            return ""
        if not "\udc00" <= char <= "\udfff":
            self._refuse(self._read - 2)
        pair, self._high = self._high + char, ""
        return pair.encode("utf-16-le", "surrogatepass").decode("utf-16-le")

    def _refuse(self, position: int) -> None:
        raise BadText(
            f"The text holds half a surrogate pair at code point {position}.",
            remedy="Send whole characters, as UTF-8.",
        )

    def _joins(self, char: str) -> bool:
        """Whether there is room for another mark, if ``char`` is one."""
        return len(self._atom) <= MARKS or _begins(char)

    def _finish_atom(self) -> None:
        whole = self.tail
        self.chars += whole
        if len(whole) == len(self._atom):
            self.ends += self._atom_ends
        else:
            self.ends += self._atom_ends[-1:] * len(whole)
        self._atom, self._atom_ends = "", []


def _begins(char: str) -> bool:
    """Whether nothing before ``char`` can change it, nor it anything before.

    That is so for all that is neither a mark nor a letter that composes with the one before it
    (Unicode's NFC_Quick_Check is Maybe): Hangul vowels and final consonants, and Kirat Rai vowel
    signs. What this Python's Unicode does not know counts as a mark.
    """
    if char < "\u0300":
        return True
    kind = unicodedata.category(char)
    if kind[0] == "M" or kind == "Cn":
        return False
    return not (
        "\u1160" <= char <= "\u11ff"
        or "\ud7b0" <= char <= "\ud7ff"
        or _KIRAT[0] <= char <= _KIRAT[1]
    )


_KIRAT = "\U00016d60", "\U00016d6f"
