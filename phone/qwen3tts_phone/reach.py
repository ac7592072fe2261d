"""How far an IP address reaches: what a private address in a description gives away."""

from __future__ import annotations

import ipaddress
from enum import IntEnum
from typing import Final


class Reach(IntEnum):
    """From where an address can be reached; the larger, the farther."""

    NOWHERE = 0
    """0.0.0.0 and ::, which mean hold in a description (RFC 2543)."""
    MACHINE = 1
    """Loopback."""
    LINK = 2
    """Link-local (RFC 3927, RFC 4291)."""
    PRIVATE = 3
    """RFC 1918, unique local (RFC 4193), and the addresses behind a carrier's NAT (RFC 6598)."""
    PUBLIC = 4


_PRIVATE: Final = tuple(
    ipaddress.ip_network(text)
    for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
)


def reach(host: str) -> Reach | None:
    """From where ``host`` can be reached; None for what is no numeric address."""
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None:
        address = mapped
    if address.is_unspecified:
        return Reach.NOWHERE
    if address.is_loopback:
        return Reach.MACHINE
    if address.is_link_local:
        return Reach.LINK
    if any(address in network for network in _PRIVATE):
        return Reach.PRIVATE
    return Reach.PUBLIC


def same_address(one: str, other: str) -> bool:
    """Whether two numeric addresses are the same; names are compared as text."""
    try:
        return ipaddress.ip_address(one.strip("[]")) == ipaddress.ip_address(other.strip("[]"))
    except ValueError:
        return one.lower() == other.lower()
