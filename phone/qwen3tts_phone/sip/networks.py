"""Addresses and networks as settings and packets write them (pure)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

IPV6_SITE_BITS = 64
"""What one customer has at the least (RFC 6177): he can use any address in it."""


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


def site_of(host: str) -> str:
    """What limits are kept for: an IPv4 address, or the /64 of an IPv6 one."""
    address = address_of(host)
    if address is None:
        return host.lower()
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(address), IPV6_SITE_BITS), strict=False))
    return str(address)
