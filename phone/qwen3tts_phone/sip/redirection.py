"""Recursion on 3xx answers to an INVITE (RFC 3261 section 8.1.3.4): the next address (pure)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.fields import parse_address, parse_uri, uri_parameter
from qwen3tts_phone.sip.message import Response

MAX_TARGETS = 5
"""Most addresses that one call is redirected to, those that fail included."""
MAX_DEPTH = 3
"""Most redirections in a row."""
MAX_CONTACTS = 16
"""Contacts of one answer that are looked at."""
FOLLOWED = (300, 301, 302, 305)
"""Not 380: what it offers is another service."""

Key = tuple[str, str, str, int | None, str]


@dataclass(frozen=True, slots=True)
class RedirectTarget:
    """Where the call goes next."""

    uri: str
    """The Request-URI."""
    proxy: str = ""
    """The proxy to send it to (305); empty = none."""
    depth: int = 1
    """Redirections that led here."""

    @property
    def callees(self) -> tuple[str, ...]:
        """Addresses to be permitted: with a proxy also the same user at the proxy's host."""
        if not self.proxy:
            return (self.uri,)
        return self.uri, str(replace(parse_uri(self.proxy), user=parse_uri(self.uri).user))


class Redirects:
    """One call's target set; every address is tried once."""

    def __init__(self, first: str) -> None:
        self.taken = 0
        """Addresses that the call was redirected to."""
        self.problems: list[str] = []
        """Why addresses were not tried, in words."""
        self._first = first
        self._secure = parse_uri(first).scheme == "sips"
        self._known = {_key(first)}
        self._left: list[tuple[float, int, RedirectTarget]] = []
        self._number = 0

    def take(self, response: Response, current: RedirectTarget | None) -> None:
        """Add the Contacts of a 3xx; ``current`` is the target that it came from, if any."""
        depth = 1 if current is None else current.depth + 1
        if depth > MAX_DEPTH:
            self.problems.append(f"it was redirected {MAX_DEPTH} times in a row")
            return
        for value in response.values("Contact")[:MAX_CONTACTS]:
            try:
                asked = current.uri if current is not None else self._first
                self._add(value, response.status, depth, asked)
            except BadSip as error:
                self.problems.append(error.message.rstrip("."))

    def next(self) -> RedirectTarget | None:
        """The next address by its q; None where none is left."""
        if not self._left:
            return None
        if self.taken >= MAX_TARGETS:
            self.problems.append(f"{MAX_TARGETS} addresses were tried")
            self._left.clear()
            return None
        self._left.sort(key=lambda each: (-each[0], each[1]))
        self.taken += 1
        return self._left.pop(0)[2]

    def _add(self, value: str, status: int, depth: int, asked: str) -> None:
        contact = parse_address(value)
        # Section 19.1.5: headers in the far end's URI are not put into our request.
        uri = contact.uri.partition("?")[0]
        parsed = parse_uri(uri)
        if parsed.scheme not in ("sip", "sips"):
            raise BadSip(f"a {parsed.scheme[:20]}: address cannot be called")
        if self._secure and parsed.scheme != "sips":
            raise BadSip("a sips: address was redirected to one without TLS")
        key = _key(uri)
        if key in self._known:
            self.problems.append("a loop was found: it leads back to an address that was called")
            return
        self._known.add(key)
        target = RedirectTarget(uri, depth=depth)
        if status == 305:
            target = RedirectTarget(asked, uri, depth)
        self._left.append((_q(contact.parameters.get("q")), self._number, target))
        self._number += 1


def _key(uri: str) -> Key:
    parsed = parse_uri(uri)
    transport = (uri_parameter(parsed, "transport") or "").lower()
    port = parsed.port or (5061 if parsed.scheme == "sips" else 5060)
    return parsed.scheme, parsed.user or "", parsed.host.lower(), port, transport


def _q(text: str | None) -> float:
    try:
        return min(1.0, max(0.0, float(text))) if text is not None else 1.0
    except ValueError:
        return 0.0
