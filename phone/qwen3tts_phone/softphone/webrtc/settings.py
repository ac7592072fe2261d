"""Timeouts and ICE servers of a WebRTC call."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

HOST = re.compile(r"([A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{1,5}))?", re.ASCII)
_ICE = re.compile(
    rf"(?P<scheme>stuns?|turns?):{HOST.pattern}(?P<query>\?transport=(?:udp|tcp))?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class IceServer:
    """STUN or TURN server (RFC 7064, RFC 7065); raises ValueError."""

    url: str
    """Such as ``stun:stun.example.org:3478`` or ``turn:turn.example.org?transport=tcp``."""
    username: str = ""
    credential: str = field(default="", repr=False)

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


@dataclass(frozen=True, slots=True)
class WebRtcSettings:
    """Timeouts in seconds, and ICE servers; raises ValueError."""

    connect_s: float = 15.0
    silent_s: float = 2.0
    """Time without packets after which `WebCall.state` is ``lost``, and `MediaSilent` is
    reported."""
    vanished_s: float = 20.0
    """Time without packets after which the call ends."""
    ice_servers: tuple[IceServer, ...] = ()

    def __post_init__(self) -> None:
        for name in ("connect_s", "silent_s", "vanished_s"):
            value = getattr(self, name)
            if not 0.1 <= value <= 3600.0:
                raise ValueError(f"{name}={value!r} is not between 0.1 and 3600 seconds")
        if self.vanished_s <= self.silent_s:
            raise ValueError(f"vanished_s={self.vanished_s} must be more than {self.silent_s}")
