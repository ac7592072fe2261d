"""Header lines of others as a mapping, and those that a program may add to our messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from sipmessage import Headers
from sipmessage.message import COMPACT_FORMS

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.fields import parse_address, parse_uri, split_list

MAX_CUSTOM_HEADERS = 32
"""Most header lines that a program may add to one message."""
MAX_VALUE_CHARS = 2048
"""Longest value of such a line."""

_TOKEN = re.compile(r"[A-Za-z0-9\-.!%*_+`'~]{1,64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
"""Line breaks and the like, and what UTF-8 cannot write."""
OURS = frozenset(
    {
        *("via", "from", "to", "call-id", "cseq", "contact", "max-forwards", "route"),
        *("record-route", "content-length", "content-type", "content-encoding", "allow"),
        *("supported", "require", "proxy-require", "unsupported", "accept", "user-agent"),
        *("server", "session-expires", "min-se", "authorization", "proxy-authorization"),
        *("www-authenticate", "proxy-authenticate", "rseq", "rack", "event", "expires"),
        *("subscription-state", "refer-to", "refer-sub", "allow-events", "recv-info"),
        *("info-package", "min-expires", "date", "timestamp", "mime-version", "path"),
    }
)
"""Headers that the agent writes itself, in lower case; they cannot be set from outside."""


class CallHeaders(Mapping[str, str]):
    """The header lines of one message; names in any case, each with its first value.

    Compact names are written out. :meth:`getlist` gives all values of a name.
    """

    __slots__ = ("_values",)

    def __init__(self, headers: Headers | None = None) -> None:
        self._values: dict[str, tuple[str, tuple[str, ...]]] = {}
        for name in headers.keys() if headers is not None else ():
            values = tuple(headers.getlist(name)) if headers is not None else ()
            self._values[name.lower()] = (name, values)

    def __getitem__(self, name: str) -> str:
        return self._values[_long(name)][1][0]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and _long(name) in self._values

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._values.values())

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        # Values may hold credentials and what callers say.
        return f"CallHeaders({', '.join(self)})"

    def getlist(self, name: str) -> tuple[str, ...]:
        """All values of a header, one for each line; empty where there is none."""
        return self._values.get(_long(name), ("", ()))[1]

    def uri(self, name: str) -> str | None:
        """The first SIP address in a header of addresses, else the first of any other kind.

        None where the header is absent or holds nothing that can be used.
        """
        found: list[str] = []
        for line in self.getlist(name):
            for value in split_list(line):
                try:
                    uri = parse_address(value).uri
                    parse_uri(uri)
                except BadSip:
                    continue
                found.append(uri)
        return min(found, key=lambda uri: not uri.lower().startswith("sip"), default=None)


def check_headers(headers: Mapping[str, str] | None) -> list[tuple[str, str]]:
    """Header lines that a program wants to add, as names and values; raises BadSip.

    A name must be a token, must not be one that the agent writes itself, and a value holds neither
    line breaks nor other control characters: else it would be somebody else's header.
    """
    lines = list((headers or {}).items())
    if len(lines) > MAX_CUSTOM_HEADERS:
        raise BadSip(f"{len(lines)} headers are over the bound of {MAX_CUSTOM_HEADERS}.")
    for name, value in lines:
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise BadSip(f"{str(name)[:40]!r} is not the name of a header.")
        if _long(name) in OURS:
            raise BadSip(
                f"The header {name} is written by the phone itself.",
                remedy="Leave it out, or use a header of your own (X-...).",
            )
        if not isinstance(value, str) or _CONTROL.search(value):
            raise BadSip(f"The value of {name} holds a line break or control character.")
        if len(value) > MAX_VALUE_CHARS:
            raise BadSip(f"The value of {name} is longer than {MAX_VALUE_CHARS} characters.")
    return lines


def check_reason(reason: str) -> str:
    """Words beside a status; raises BadSip where they would break the line."""
    if _CONTROL.search(reason) or len(reason) > MAX_VALUE_CHARS:
        raise BadSip("The reason is too long, or holds a line break or control character.")
    return reason


def _long(name: str) -> str:
    name = name.lower()
    return COMPACT_FORMS.get(name, name).lower()
