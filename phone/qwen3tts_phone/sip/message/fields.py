"""Header fields: lists, addresses, URIs and Via, parsed by ``sipmessage``.

Values are echoed as received (``sipmessage`` would rewrite quoted parameters, percent-encoded).
Its errors become :class:`BadSip`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from sipmessage import URI, Address, Headers, Via
from sipmessage.message import COMPACT_FORMS

from qwen3tts_phone.errors import BadSip

MAX_FIELD_CHARS = 4096
"""Longest address or Via that is parsed."""
MAX_PARAMETERS = 64
"""Most parameters of one address, URI or Via."""
MAX_CACHED = 256
"""Cached parsed values; each is parsed several times a message."""

_STRUCTURE = re.compile(r'[",<>\\]')

# RFC 3261 section 25.1 lets a top label end in a digit (`pbx1`); sipmessage 0.7 does not, so
# plain host names are checked here and handed to it as a stand-in.
_PLAIN_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,253}[A-Za-z0-9.])?")
_STAND_IN = "x"
_SIP_URI = re.compile(
    r"(?P<head>sips?:(?:[^@\[\]<>\s]*@)?)(?P<host>[^:;?@\[\]<>\s]+)(?P<tail>(?:[:;?].*)?)",
    re.I | re.S,
)
_VIA = re.compile(
    r"(?P<head>SIP\s*/\s*2\.0\s*/\s*[A-Za-z0-9-]+\s+)(?P<host>[^:;,\[\]\s]+)(?P<tail>(?:[:;\s].*)?)",
    re.I | re.S,
)

_SECONDS = re.compile(r"[0-9]{1,10}")

# RFC 3261 section 25.1 writes an IPv6 address here without brackets; sipmessage wants them.
_RECEIVED_IPV6 = re.compile(r"(;\s*received\s*=\s*)[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*", re.I)


@dataclass(frozen=True, slots=True)
class NameAddr:
    """Address of From, To, Contact, Route or Record-Route."""

    text: str
    """The whole value, as received."""
    uri: str
    """The URI alone, as received."""
    name: str
    parameters: Mapping[str, str | None]
    """Header parameters; names in lower case."""

    @property
    def tag(self) -> str | None:
        return self.parameters.get("tag") or None


def split_list(value: str) -> list[str]:
    return list(_split(value))


@lru_cache(MAX_CACHED)
def _split(value: str) -> tuple[str, ...]:
    parts: list[str] = []
    start = 0
    bracketed = False
    for index, char in _unquoted(value):
        if char != ",":
            bracketed = char == "<"
        elif not bracketed:
            parts.append(value[start:index].strip())
            start = index + 1
    parts.append(value[start:].strip())
    return tuple(part for part in parts if part)


def _unquoted(text: str) -> Iterator[tuple[int, str]]:
    quoted = False
    escaped = -1
    for match in _STRUCTURE.finditer(text):
        index, char = match.start(), match[0]
        if index == escaped:
            continue
        if char == '"':
            quoted = not quoted
        elif not quoted and char != "\\":
            yield index, char
        elif quoted and char == "\\":
            escaped = index + 1


@lru_cache(MAX_CACHED)
def parse_uri(text: str) -> URI:
    _bounded(text, "A SIP URI")
    # RFC 3261 section 19.1.1: headers (after "?") do not belong in a request line.
    text = text.strip().partition("?")[0] if text.lower().startswith("sip") else text.strip()
    match = _SIP_URI.fullmatch(text)
    try:
        if match and _PLAIN_HOST.fullmatch(match["host"]):
            head = match["head"]
            scheme, _, user = head.partition(":")
            uri = URI.parse(f"{scheme.lower()}:{user}{_STAND_IN}{match['tail']}")
            uri = replace(uri, host=match["host"])
        else:
            uri = URI.parse(text)
    except (ValueError, TypeError) as error:
        raise BadSip(
            f"{_shown(text)} is not a SIP address.",
            remedy="Write it as sip:USER@HOST or sip:USER@HOST:PORT.",
        ) from error
    if uri.port is not None and not 0 < uri.port < 65536:
        raise BadSip(f"Port {uri.port} of {_shown(text)} is out of range.")
    return uri


@lru_cache(MAX_CACHED)
def parse_address(text: str) -> NameAddr:
    """Parse a name-addr or addr-spec, not its URI; raises BadSip."""
    _bounded(text, "An address")
    text = text.strip()
    opening = next((index for index, char in _unquoted(text) if char == "<"), -1)
    if opening >= 0:
        closing = text.find(">", opening)
        if closing < 0:
            raise BadSip(f"The address {_shown(text)} does not close its bracket.")
        uri = text[opening + 1 : closing].strip()
        stand_in = f"{text[:opening]}<sip:{_STAND_IN}>{text[closing + 1 :]}"
    else:
        # RFC 3261 section 20: without brackets, what follows ";" belongs to the header.
        uri, semicolon, tail = text.partition(";")
        uri = uri.strip()
        stand_in = f"<sip:{_STAND_IN}>{semicolon}{tail}"
    if not uri or any(char.isspace() for char in uri):
        raise BadSip(f"The address {_shown(text)} holds no URI.")
    try:
        address = Address.parse(stand_in)
    except (ValueError, TypeError) as error:
        raise BadSip(f"{_shown(text)} is not an address.") from error
    parameters = {name.lower(): value for name, value in address.parameters.items()}
    return NameAddr(text, uri, address.name, parameters)


@lru_cache(MAX_CACHED)
def parse_via(text: str) -> Via:
    _bounded(text, "A Via")
    text = _RECEIVED_IPV6.sub(rf"\1{_STAND_IN}", text)
    match = _VIA.fullmatch(text)
    try:
        if match and _PLAIN_HOST.fullmatch(match["host"]):
            via = Via.parse(f"{match['head']}{_STAND_IN}{match['tail']}")
            via = replace(via, host=match["host"])
        else:
            via = Via.parse(text)
    except (ValueError, TypeError) as error:
        raise BadSip(f"{_shown(text)} is not a Via.") from error
    if via.port is not None and not 0 < via.port < 65536:
        raise BadSip(f"Port {via.port} of a Via is out of range.")
    return via


def delta_seconds(text: str | None, most: int) -> int | None:
    """Return whole seconds, bounded, or None; ``10 (comment);x`` is 10."""
    match = _SECONDS.match((text or "").strip())
    return min(int(match[0]), most) if match else None


def uri_parameter(uri: URI, name: str) -> str | None:
    """Return a URI parameter by lower-case name; None: absent, "": without value."""
    for key, value in uri.parameters.items():
        if key.lower() == name:
            return value or ""
    return None


def check_secure(uri_text: str, transport: str = "") -> None:
    """Raise BadSip for a sips: URI over UDP."""
    # RFC 3261 section 26.2.2: it takes TLS on each hop.
    if uri_text.strip()[:5].lower() != "sips:":
        return
    named = uri_parameter(parse_uri(uri_text), "transport") or ""
    if "udp" in (named.lower(), transport):
        raise BadSip(
            f"{_shown(uri_text)} is a sips: address, and never goes over UDP.",
            remedy="Leave transport=udp away and use TLS on the whole way, or write sip:.",
        )


def is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _bounded(text: str, what: str) -> None:
    if len(text) > MAX_FIELD_CHARS:
        raise BadSip(f"{what} of {len(text)} characters is too long.")
    if text.count(";") > MAX_PARAMETERS:
        raise BadSip(f"{what} has more than {MAX_PARAMETERS} parameters.")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


MAX_CUSTOM_HEADERS = 32
"""Header fields a program may add to a message."""
MAX_VALUE_CHARS = 2048
"""Longest value of such a line."""

_TOKEN = re.compile(r"[A-Za-z0-9\-.!%*_+`'~]{1,64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
"""Line breaks and other control characters; lone surrogates."""
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
"""Header fields of the user agent, lower case."""


class CallHeaders(Mapping[str, str]):
    """Header fields of one message by case-insensitive, long name.

    Each gives its first value; :meth:`getlist` all.
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
        return self._values.get(_long(name), ("", ()))[1]

    def uri(self, name: str) -> str | None:
        """Return the first usable SIP address, else the first other URI, or None."""
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
    # A name must be a token that the user agent does not write itself; a value holds no control
    # characters, which could inject another header.
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
    if _CONTROL.search(reason) or len(reason) > MAX_VALUE_CHARS:
        raise BadSip("The reason is too long, or holds a line break or control character.")
    return reason


def _long(name: str) -> str:
    name = name.lower()
    return COMPACT_FORMS.get(name, name).lower()
