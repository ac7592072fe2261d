"""Addresses and networks as settings and packets write them (pure)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

IPV6_SITE_BITS = 64
"""What one customer has at the least (RFC 6177): he can use any address in it."""


_PRIVATE: tuple[Network, ...] = (
    *(ipaddress.ip_network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")),
    *(ipaddress.ip_network(text) for text in ("100.64.0.0/10", "0.0.0.0/8", "fc00::/7")),
)
"""RFC 1918, RFC 6598, RFC 1122 section 3.2.1.3, RFC 4193."""


def networks(texts: Iterable[str], what: str = "networks") -> tuple[Network, ...]:
    """Networks such as ``192.0.2.0/24``; a single address is one, too.

    Raises ValueError, beginning with ``what``, for what is neither.
    """
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
    """The address that a host is; None for a name. An IPv4 address inside IPv6 is the IPv4 one."""
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def within(address: Address | None, among: Iterable[Network]) -> bool:
    """Whether an address is in one of the networks."""
    return address is not None and any(address in network for network in among)


def behind_nat(host: str, peer: str) -> bool:
    """Whether a peer's Contact names an address that only its own network, or machine, knows.

    That is so where the peer was seen at an address that is known more widely. What is sent to
    the Contact would take its time to fail, or reach somebody else.
    """
    address, seen = address_of(host), address_of(peer)
    return address is not None and seen is not None and _reach(address) < _reach(seen)


def _reach(address: Address) -> int:
    """From how far an address can be used: its machine, its link, its networks, everywhere."""
    if address.is_loopback or address.is_unspecified:
        return 0
    if address.is_link_local:
        return 1
    return 2 if within(address, _PRIVATE) else 3


def site_of(host: str) -> str:
    """What limits are kept for: an IPv4 address, or the /64 of an IPv6 one."""
    address = address_of(host)
    if address is None:
        return host.lower()
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(address), IPV6_SITE_BITS), strict=False))
    return str(address)
