"""Hops, IP addresses and networks."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

DnsLookup = Literal["address", "srv", "naptr"]
"""DNS query of a host (RFC 3263 section 4): address where its port was given; SRV where the
transport was; else NAPTR too."""


@dataclass(frozen=True, slots=True)
class Hop:
    """Transport, host and port of a message."""

    transport: str
    host: str
    """IP address, or a name resolved on sending."""
    port: int
    flow: int = 0
    """Above 0: a connection; below: a further UDP socket; 0: any."""
    by_flow: bool = False
    """True if that connection is used while it is open, whatever host and port."""
    name: str = field(default="", compare=False)
    """Domain that led here, which the certificate must name."""
    lookup: DnsLookup = field(default="address", compare=False)
    """DNS query where ``host`` is a name."""
    secure: bool = field(default=False, compare=False)
    """True if a sips: address led here: our Contact must be one (RFC 3261 8.1.1.8)."""
    rank: int = field(default=0, compare=False)
    """Distance from the best of an account's servers; 0 is best."""
    server: str = field(default="", compare=False)
    """URI of a further server of an account; else empty."""
    fixed: bool = field(default=False, compare=False)
    """True if the URI names the transport, or there is only one."""
    others: tuple[Hop, ...] = field(default=(), compare=False)
    """Next hops on failure (RFC 3263 section 4.3)."""

    @property
    def reliable(self) -> bool:
        return self.transport != "udp"

    @property
    def words(self) -> str:
        return _words(self.name or self.host, self)

    @property
    def at(self) -> str:
        return _words(self.host, self)


def _words(host: str, hop: Hop) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{hop.port} over {hop.transport.upper()}"


Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

IPV6_SITE_BITS = 64
"""Least prefix of one customer (RFC 6177)."""


_PRIVATE: tuple[Network, ...] = (
    *(ipaddress.ip_network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")),
    *(ipaddress.ip_network(text) for text in ("100.64.0.0/10", "0.0.0.0/8", "fc00::/7")),
)
"""Private and shared networks: RFC 1918, RFC 6598, RFC 1122 section 3.2.1.3, RFC 4193."""


def networks(texts: Iterable[str], what: str = "networks") -> tuple[Network, ...]:
    """Parse networks or addresses; raises ValueError with ``what``."""
    found: list[Network] = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text.strip().strip("[]"), strict=False))
        except ValueError:
            raise ValueError(
                f"{what}: {text!r} is no address and no network, such as 192.0.2.0/24"
            ) from None
    return tuple(found)


def address_of(host: str) -> Address | None:
    """Return an IP address, an IPv4-mapped one as IPv4; None for a name."""
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def in_networks(address: Address | None, among: Iterable[Network]) -> bool:
    return address is not None and any(address in network for network in among)


def behind_nat(host: str, peer: str) -> bool:
    address, seen = address_of(host), address_of(peer)
    return address is not None and seen is not None and _reach(address) < _reach(seen)


def _reach(address: Address) -> int:
    if address.is_loopback or address.is_unspecified:
        return 0
    if address.is_link_local:
        return 1
    return 2 if in_networks(address, _PRIVATE) else 3


def site_of(host: str) -> str:
    address = address_of(host)
    if address is None:
        return host.lower()
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(address), IPV6_SITE_BITS), strict=False))
    return str(address)
