"""Patterns of Markdown and HTML, and of their beginnings.

Each ``OPEN_`` pattern fully matches every beginning of the same-named pattern's matches; anything
else is not markup, whatever follows.
"""

from __future__ import annotations

import re
from typing import Final

HOLD: Final = 200
"""Characters within which an open ``<`` or ``[`` must be closed to be markup."""
FENCE: Final = 3
"""Marks that fence a block of code; marks of a rule."""
NOTE_MAX: Final = 62
"""Characters of a footnote's mark."""

ADDRESS: Final = re.compile(r"(?:[^\s*`<>\"]|\*(?=[\w/=&?]))+")
"""The rest of an address; a star at its end closes an emphasis."""
ESCAPED: Final = re.compile(r"[!-/:-@\[-`{-~]")
BOX: Final = re.compile(r"\[[ xX]\](?=\s|\Z)")
OPEN_BOX: Final = re.compile(r"\[(?:[ xX]\]?)?")
HEADING: Final = re.compile(r"#{1,7}")
INFO: Final = re.compile(r"[ \t]{0,8}[\w+#.-]{0,40}[ \t]{0,8}")
"""Name of a programming language behind a fence."""
BROAD_INFO: Final = re.compile(r"[^`\n]{0,63}")
"""Anything behind a fence that begins a line."""
NOTE: Final = re.compile(rf"\[(?:\^[^\]\n]{{0,{NOTE_MAX}}}|\d{{1,{NOTE_MAX}}}|[ xX])\]")
OPEN_NOTE: Final = re.compile(rf"\[(?:\^[^\]\n]{{0,{NOTE_MAX}}}|\d{{0,{NOTE_MAX}}}|[ xX])?")
FACE: Final = re.compile(r"[:;]-?[)(DPp|/](?=[\s.,!?]|\Z)")
OPEN_FACE: Final = re.compile(r"[:;]-?[)(DPp|/]?")
ENTITY: Final = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
OPEN_ENTITY: Final = re.compile(
    r"&(?:#(?:\d{0,7}|[xX][0-9a-fA-F]{0,6})|[A-Za-z][A-Za-z0-9]{0,31})?"
)
TARGET_REST: Final = re.compile(r"[^\s)]+")

# An attribute has a value: "x <y and y> z" is not a tag.
_NAME = r"[A-Za-z_:][\w:.-]*"
_VALUE = r"\"[^\"]*\"|'[^']*'|[^\s\"'<>=`]+"
_ELEMENT = rf"[A-Za-z][\w:.-]*(?:\s+{_NAME}\s*=\s*(?:{_VALUE}))*"
_ONE_WORD = r"[A-Za-z][\w:.-]*\s+\w+"
_OTHERS = r"<!--(?:.|\n)*?-->|<!\w[^<>]*>|<\?[^<>]*>"
TAG: Final = re.compile(rf"</?{_ELEMENT}\s*/?>|{_OTHERS}")
BROAD_TAG: Final = re.compile(rf"</?(?:{_ELEMENT}|{_ONE_WORD})\s*/?>|{_OTHERS}")
"""A tag, or one with a single attribute that has no value: ``<option selected>``."""
BREAK: Final = re.compile(
    r"</?(?:br|p|div|li|ul|ol|tr|td|th|table|h[1-6]|hr|blockquote|section|article|break)\b",
    re.IGNORECASE,
)
"""Tags that part words as a line's end does."""
_USER = r"[A-Za-z][\w.+-]*"
AUTOLINK: Final = re.compile(rf"<(?:mailto:)?(https?://[^\s<>]*|{_USER}@[\w.-]+)>")
BROAD_AUTOLINK: Final = re.compile(r"<([A-Za-z][\w./+-]*[:@][^\s<>]*)>")
"""Any address with a scheme or an at sign."""
OPEN_TAG: Final = re.compile(
    rf"</?(?:{_ELEMENT}(?:\s*/?|\s+{_NAME}\s*(?:=\s*(?:\"[^\"]*|'[^']*)?)?))?"
    r"|<!(?:-(?:-(?:.|\n)*)?|\w[^<>]*)?|<\?[^<>]*"
    rf"|<(?:https?:/?|https?://[^\s<>]*|(?:mailto:)?(?:{_USER}(?:@[\w.-]*)?)?)"
)
BROAD_OPEN_TAG: Final = re.compile(
    rf"{OPEN_TAG.pattern}|<(?:[A-Za-z][\w./+-]*(?:[:@][^\s<>]*)?)|</?{_ONE_WORD}\s*/?"
)

# Within the brackets one more pair may stand: an image's, or a citation.
_LABEL = r"\[((?:[^\[\]]|\[[^\[\]]*\])*)"
LABEL: Final = re.compile(_LABEL + r"\]")
OPEN_LABEL: Final = re.compile(_LABEL + r"(?:\[[^\[\]]*)?")
_ADDRESSED = r"\(\s*[^\s()]*(?:\([^\s()]*\)[^\s()]*)*"
TARGET: Final = re.compile(_ADDRESSED + r"(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)")
OPEN_TARGET: Final = re.compile(
    _ADDRESSED + r"(?:\([^\s()]*|\s+(?:(?:\"[^\"]*|'[^']*)|(?:\"[^\"]*\"|'[^']*')\s*)?)?"
)
LONG_TARGET: Final = re.compile(rf"\([^\s()]{{{HOLD - 1}}}")
"""An address of this length is one, though its end is not there yet."""
