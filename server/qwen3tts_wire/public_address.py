"""Which IP addresses anybody may ask: for recordings whose addresses strangers may write. Pure."""

from __future__ import annotations

import ipaddress

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_NEVER = tuple(
    map(
        ipaddress.ip_network,
        (
            "100.64.0.0/10",  # behind a carrier's translation
            "168.63.129.16/32",  # a cloud's metadata, at a public address
            "192.0.0.0/24",  # protocols, and another cloud's metadata
            "192.88.99.0/24",  # relays into 6to4
            "198.18.0.0/15",  # benchmarks
            "64:ff9b:1::/48",  # local translation into IPv4
            "100::/64",
            "2001:db8::/32",
            "3fff::/20",
            "5f00::/16",
            "fec0::/10",  # sites
        ),
    )
)
"""Some of these are global for older versions of the standard library."""


def is_public(address: str) -> bool:
    """Whether an IP address is one that anybody may ask: not of this machine, nor of a private
    network, a link, a group, a cloud's metadata, nor one of these within an IPv6 address."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.scope_id is not None:
            return False
        within = [ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())]
        if ip in _NAT64:
            within.append(ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF))
        # The first 96 bits 0: addresses of IPv4 in a form that is used no more.
        if int(ip) >> 32 == 0:
            return False
        if not all(is_public(str(each)) for each in within if each is not None):
            return False
        if ip.ipv4_mapped is not None or ip in _NAT64:
            return True
    return (
        ip.is_global
        and not ip.is_multicast
        and not ip.is_reserved
        and not ip.is_unspecified
        and not any(ip in each for each in _NEVER if each.version == ip.version)
    )
