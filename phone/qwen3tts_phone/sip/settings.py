"""What a SIP endpoint is told: read once, checked once, frozen."""

from __future__ import annotations

from dataclasses import dataclass, field

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.fields import parse_uri


@dataclass(frozen=True, slots=True)
class Timers:
    """The three base times of RFC 3261 section 17.1.1.1, in seconds; all others follow."""

    t1: float = 0.5
    """Estimate of the round trip; first retransmission."""
    t2: float = 4.0
    """Longest wait between retransmissions."""
    t4: float = 5.0
    """How long a message may stay in the network."""

    @property
    def timeout(self) -> float:
        """64*T1: timers B, F, H, L and M."""
        return 64 * self.t1


@dataclass(frozen=True, slots=True)
class SipSettings:
    """Where an endpoint listens and how it names itself."""

    host: str = "127.0.0.1"
    """Address to bind; 0.0.0.0 for all."""
    port: int = 0
    """Port for UDP and TCP; 0 = any free one, the same for both."""
    transports: tuple[str, ...] = ("udp", "tcp")
    user: str = "agent"
    display_name: str = ""
    user_agent: str = "mr-qwen3tts"
    advertised_host: str = ""
    """Host in Via and Contact; empty = the bound one, or the one that routes to the peer."""
    max_calls: int = 250
    """Calls at once; further ones are answered 486."""
    ring_timeout_s: float = 180.0
    """How long a call of ours may ring before it is cancelled."""
    session_expires_s: int = 1800
    """Interval of session timers (RFC 4028) that our calls ask for; 0 = none."""
    max_redials: int = 3
    """Most times one request is sent anew because of challenges."""
    timers: Timers = field(default_factory=Timers)

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise ValueError(f"port={self.port} is not between 0 and 65535")
        unknown = set(self.transports) - {"udp", "tcp"}
        if unknown or not self.transports:
            raise ValueError(f"transports={self.transports!r}: each must be udp or tcp")
        for name in ("user", "display_name", "user_agent", "advertised_host"):
            if any(ord(char) < 32 or ord(char) == 127 for char in getattr(self, name)):
                raise ValueError(f"{name} holds a control character")
        if self.session_expires_s and self.session_expires_s < 90:
            raise ValueError(f"session_expires_s={self.session_expires_s} is below 90 (RFC 4028)")
        if self.max_calls < 1:
            raise ValueError(f"max_calls={self.max_calls} must be at least 1")


@dataclass(frozen=True, slots=True)
class Account:
    """An account with a registrar or a server that asks for a password."""

    registrar: str
    """``sip:host[:port][;transport=tcp]``."""
    user: str
    password: str = field(repr=False)
    expires: int = 300
    """Seconds asked for; the registrar grants what it likes."""
    auth_user: str = ""
    """User name for the digest where it differs from ``user``."""
    proxy: str = ""
    """Outbound proxy, as a SIP URI; empty = none."""

    def __post_init__(self) -> None:
        if not self.user:
            raise BadSip("The account has no user name.")
        if self.expires < 1:
            raise BadSip(f"expires={self.expires} must be at least 1 second.")
        if parse_uri(self.registrar).scheme == "tel":
            raise BadSip("The registrar must be a sip: address.")
        if self.proxy:
            parse_uri(self.proxy)
