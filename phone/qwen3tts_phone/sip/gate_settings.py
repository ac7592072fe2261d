"""What the gate is told: read once, checked once, frozen."""

from __future__ import annotations

import math
from dataclasses import dataclass

from qwen3tts_phone.sip.networks import networks

LOOPBACK = ("127.0.0.0/8", "::1/128")
SCANNERS = (
    *("friendly-scanner", "friendly-request", "sipvicious", "sipsak", "sundayddr", "sip-scan"),
    *("sipcli", "vaxsipuseragent", "vaxasip", "pplsip", "sipptk", "siparmyknife", "smap/"),
)
"""Programs that search the net for lines to abuse, by what they write in User-Agent."""


@dataclass(frozen=True, slots=True)
class GateSettings:
    """Limits for those who are not trusted, and what nobody gets."""

    requests_per_s: float = 20.0
    """Requests outside calls from one source, beyond the burst; what is over it is dropped."""
    burst: int = 60
    """Requests outside calls that one source may send at once."""
    invites_per_s: float = 2.0
    """New calls from one source, beyond the burst; what is over it is answered 503."""
    invite_burst: int = 20
    """New calls that one source may make at once."""
    messages_per_s: float = 500.0
    """Messages of any kind from one source that are read at all; its burst is twice that."""
    total_per_s: float = 500.0
    """Requests outside calls from all sources that are not trusted, beyond the burst: so a flood
    from forged addresses leaves time for the others. What is over it is dropped."""
    total_burst: int = 1000
    """Requests outside calls that all those sources together may send at once."""
    max_calls_per_source: int = 50
    """Incoming calls under way; further ones are answered 486."""
    max_connections_per_source: int = 32
    """Connections by TCP and TLS; a further one is closed at once."""
    max_sources: int = 4096
    """Sources remembered; the one not seen for longest is forgotten first."""
    allow: tuple[str, ...] | None = None
    """Networks that may send requests, as ``192.0.2.0/24``; None = all."""
    deny: tuple[str, ...] = ()
    """Networks that may not, even where they are allowed or trusted."""
    trusted: tuple[str, ...] = LOOPBACK
    """Networks exempt from the limits, and believed when they say who a caller is
    (P-Asserted-Identity). What a proxy at a loopback address passes on is judged by the address
    that it came to the proxy from. Write ``[]`` where a tunnel or port forwarder, which is no SIP
    proxy, brings requests to a loopback address."""
    users: tuple[str, ...] | None = None
    """User parts that can be called, with ``*`` and ``?`` as wildcards; None = any."""
    hosts: tuple[str, ...] = ()
    """Host names that mean us, besides our own addresses."""
    quiet: bool = False
    """Whether strangers get no answer where they would be refused, and none to OPTIONS."""
    ban_after: int = 20
    """Refused requests after which a source gets no answer any more; 0 = never."""
    ban_s: float = 300.0
    """For how long, in seconds; also the time in which the refusals count."""
    scanners: tuple[str, ...] = SCANNERS
    """What the User-Agent of a program that gets no answer holds, in any case."""

    def __post_init__(self) -> None:
        for name in ("allow", "deny", "trusted"):
            networks(getattr(self, name) or (), name)
        for name in (
            *("requests_per_s", "invites_per_s", "messages_per_s", "total_per_s", "ban_s"),
            *("burst", "invite_burst", "total_burst"),
            *("max_calls_per_source", "max_connections_per_source", "max_sources"),
        ):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name}={value} must be above 0")
        if self.ban_after < 0:
            raise ValueError(f"ban_after={self.ban_after} must not be negative")
        for name in ("users", "hosts", "scanners"):
            if any(not each.strip() for each in getattr(self, name) or ()):
                raise ValueError(f"{name} holds an empty text")
