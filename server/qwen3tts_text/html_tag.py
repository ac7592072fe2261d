"""HTML tags and links in angle brackets, recognised while they are read."""

from __future__ import annotations

import re
from enum import Enum, auto

from qwen3tts_text.characters import WHITE_SPACE

TAG_MAX = 256
"""Characters after which ``<`` was no tag."""

_BLOCK_TAGS = re.compile(
    r"/?(br|p|div|li|ul|ol|tr|table|h[1-6]|hr|blockquote|section|article)\b", re.IGNORECASE
)
_TAG = re.compile(r"/?[A-Za-z][\w:.-]*(\s[^<]*=[^<]*|\s+\w+)?\s*/?|!--.*--|![A-Za-z][^<>]*|\?.*\?")
_AUTOLINK = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?[^\s<>]*[:@][^\s<>]*", re.IGNORECASE)


class Tag(Enum):
    """What stands between angle brackets."""

    TEXT = auto()
    """Nothing of HTML."""
    INLINE = auto()
    """A tag or comment, within a line."""
    BREAK = auto()
    """A tag that begins or ends a line."""
    LINK = auto()
    """An address."""


def tag_of(content: str) -> Tag:
    """The kind of ``<content>``."""
    if _TAG.fullmatch(content):
        return Tag.BREAK if _BLOCK_TAGS.match(content) else Tag.INLINE
    return Tag.LINK if _AUTOLINK.fullmatch(content) else Tag.TEXT


class TagSoFar:
    """Whether what follows a ``<`` may still be a tag, a comment or a link."""

    def __init__(self) -> None:
        self._first = ""
        self._quote = ""
        self._link = False
        self._comment = False
        self._tail = ""
        self._words = 1
        self._values = 0
        self._length = 0

    @property
    def may_end(self) -> bool:
        """Whether ``>`` ends it, for it is not within quotation marks."""
        if self._comment:
            return self._tail == "--" and self._length > 4
        return not self._quote

    def takes(self, char: str) -> bool:
        """Whether it may go on with ``char``; to be asked in order, until it says no."""
        self._length += 1
        before = self._tail[-1:]
        self._tail = before + char
        if not self._first:
            self._first = char
            return (char.isascii() and char.isalpha()) or char in "/!?"
        if char in "<\n" or self._length > TAG_MAX:
            return False
        if self._quote:
            self._quote = "" if char == self._quote else self._quote
            return True
        if self._first in "!?":
            self._comment = self._comment or (self._length == 3 and self._tail == "--")
            return True
        if char in WHITE_SPACE:
            return not self._link
        if before in WHITE_SPACE:
            # A second word needs the value of the first: <a href="…" id="…">, not "a <b and c".
            self._words += 1
            if self._words > 2 and not self._values:
                return False
        if self._words == 1:
            self._link = self._link or char in ":@"
            return self._link or char.isalnum() or char in "._-/+"
        if char == "=":
            self._values += 1
        elif char in "\"'" and before == "=":
            self._quote = char
        return char.isalnum() or char in "_:.-=/@\"'#%;,"
