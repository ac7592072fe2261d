"""Where a message goes to or came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Asks = Literal["address", "srv", "naptr"]
"""What DNS has to say about a host (RFC 3263 section 4): its address alone, where its port was
given; its servers, where the transport was; the transport as well."""


@dataclass(frozen=True, slots=True)
class Hop:
    """Where a message goes to or came from."""

    transport: str
    host: str
    """An IP address, or a name that is looked up when something is sent there."""
    port: int
    flow: int = 0
    """Above 0: a connection; below: one of our UDP sockets after the first; 0 = any that fits."""
    by_flow: bool = False
    """Whether that connection is to be used whatever host and port say, as long as it is open."""
    name: str = field(default="", compare=False)
    """The domain that led to the address; what a certificate there must name."""
    asks: Asks = field(default="address", compare=False)
    """What is looked up where ``host`` is a name."""
    secure: bool = field(default=False, compare=False)
    """Whether a sips: address led here, so that our Contact must be one (RFC 3261 8.1.1.8)."""
    rank: int = field(default=0, compare=False)
    """How far from the best of an account's servers: 0 is as good as any."""
    server: str = field(default="", compare=False)
    """URI of the further server that this is, where an account names some; else empty."""
    fixed: bool = field(default=False, compare=False)
    """Whether it must be this transport: it was asked for by name, or nothing else leads there."""
    others: tuple[Hop, ...] = field(default=(), compare=False)
    """Where to go next when this one does not answer (RFC 3263 section 4.3)."""

    @property
    def reliable(self) -> bool:
        """Whether the transport itself retransmits."""
        return self.transport != "udp"

    @property
    def words(self) -> str:
        """For people: ``pbx.example:5060 over UDP``."""
        return _words(self.name or self.host, self)

    @property
    def at(self) -> str:
        """The same with the address itself: ``192.0.2.1:5060 over UDP``."""
        return _words(self.host, self)


def _words(host: str, hop: Hop) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{hop.port} over {hop.transport.upper()}"
