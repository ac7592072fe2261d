"""What markup looks like, and what the beginning of it looks like while it grows.

Each ``OPEN_`` pattern matches, in full, every beginning of what the pattern of the same name
matches; what does not match it any more is no markup, whatever follows.
"""

from __future__ import annotations

import re
from typing import Final

HOLD: Final = 200
"""Characters within which an open ``<`` or ``[`` must be closed to be markup."""
FENCE: Final = 3
"""Backticks that begin a block of code; marks that make a rule."""

PLAIN: Final = re.compile(r"(?:[^\\`*_~<\[!&\n]|!(?!\[|\Z))+")
"""What no markup begins with."""
ADDRESS: Final = re.compile(r"(?:[^\s*`<>\"]|\*(?=[\w/=&?]))+")
"""The rest of an address; a star at its end closes an emphasis."""
CODE: Final = re.compile(r"[^`\n]+")
ESCAPED: Final = re.compile(r"[!-/:-@\[-`{-~]")
BULLET: Final = re.compile(r"[-+*•‣◦▪]")
BOX: Final = re.compile(r"\[[ xX]\](?=\s|\Z)")
OPEN_BOX: Final = re.compile(r"\[(?:[ xX]\]?)?")
HEADING: Final = re.compile(r"#{1,7}")
RULE: Final = re.compile(r"[-*_=|:][-*_=|: \t]*")
"""A line of these alone separates parts, or the head of a table from its rows."""
RULE_MARKS: Final = "-*_="
INFO: Final = re.compile(r"[ \t]{0,8}[\w+#.-]{0,40}[ \t]{0,8}")
"""The name of a programming language behind a fence."""
ENTITY: Final = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
OPEN_ENTITY: Final = re.compile(
    r"&(?:#(?:\d{0,7}|[xX][0-9a-fA-F]{0,6})|[A-Za-z][A-Za-z0-9]{0,31})?"
)
TARGET_REST: Final = re.compile(r"[^\s)]+")

# An attribute has a value: "x <y and y> z" is no tag.
_NAME = r"[A-Za-z_:][\w:.-]*"
_VALUE = r"\"[^\"]*\"|'[^']*'|[^\s\"'<>=`]+"
_ELEMENT = rf"[A-Za-z][\w:.-]*(?:\s+{_NAME}\s*=\s*(?:{_VALUE}))*"
TAG: Final = re.compile(rf"</?{_ELEMENT}\s*/?>|<!--(?:.|\n)*?-->|<!\w[^<>]*>|<\?[^<>]*>")
BREAK: Final = re.compile(r"</?(?:br|p|div|li|tr|td|th|h[1-6]|hr|ul|ol|break)\b", re.IGNORECASE)
"""Tags that stand between words as a line end does."""
_USER = r"[A-Za-z][\w.+-]*"
AUTOLINK: Final = re.compile(rf"<(?:mailto:)?(https?://[^\s<>]*|{_USER}@[\w.-]+)>")
OPEN_TAG: Final = re.compile(
    rf"</?(?:{_ELEMENT}(?:\s*/?|\s+{_NAME}\s*(?:=\s*(?:\"[^\"]*|'[^']*)?)?))?"
    r"|<!(?:-(?:-(?:.|\n)*)?|\w[^<>]*)?|<\?[^<>]*"
    rf"|<(?:https?:/?|https?://[^\s<>]*|(?:mailto:)?(?:{_USER}(?:@[\w.-]*)?)?)"
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
"""So long an address is one, though its end is not there yet."""
