"""Addresses of web pages and of ICE servers, as settings and headers write them (pure)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

HOST = re.compile(r"([A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{1,5}))?", re.ASCII)
"""A host and its port (RFC 9110 section 7.2), no more than that."""
PORTS = {"http": 80, "https": 443}
_ICE = re.compile(
    rf"(?P<scheme>stuns?|turns?):{HOST.pattern}(?P<query>\?transport=(?:udp|tcp))?", re.ASCII
)


def plain_host(host: str) -> str:
    """Return a host name in one spelling, without brackets."""
    return host.strip().strip("[]").rstrip(".").lower()


def origin_of(text: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port of an origin (RFC 6454 section 6.2); None if it is none."""
    scheme, separator, rest = text.partition("://")
    found = HOST.fullmatch(rest)
    if not separator or scheme not in PORTS or found is None:
        return None
    return scheme, plain_host(found[1]), int(found[2] or PORTS[scheme])


@dataclass(frozen=True, slots=True)
class IceServer:
    """A STUN or TURN server, for both ends of a call (RFC 7064, RFC 7065).

    Raises:
        ValueError: the URL is none of those, or a TURN server has no user or no password.
    """

    url: str
    """Such as ``stun:stun.example.org:3478`` or ``turn:turn.example.org?transport=tcp``."""
    username: str = ""
    credential: str = field(default="", repr=False)
    """Long-term password of a TURN server."""

    def __post_init__(self) -> None:
        found = _ICE.fullmatch(self.url)
        if found is None:
            raise ValueError(
                f"url={self.url!r} is no STUN or TURN server, such as stun:stun.example.org:3478"
                " or turn:turn.example.org:3478?transport=udp"
            )
        relay = found["scheme"].startswith("turn")
        if found["query"] and not relay:
            raise ValueError(f"url={self.url!r}: only a TURN server has ?transport=")
        if relay and not (self.username and self.credential):
            raise ValueError(f"url={self.url!r} needs username and credential")
        if not relay and (self.username or self.credential):
            raise ValueError(f"url={self.url!r}: a STUN server has no username and no credential")
