"""IP addresses in session descriptions: alternatives and scopes."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

MAX_CANDIDATES = 64
"""Most lines of these kinds that are looked at."""
Endpoint = tuple[str, int]
"""Numeric host and port."""

_ALTC = re.compile(r"altc:\s*\d{1,3}\s+IP[46]\s+(\S{1,45})\s+(\d{1,5})")
_CANDIDATE = re.compile(
    r"candidate:\S{1,32}\s+1\s+udp\s+(\d{1,10})\s+(\S{1,45})\s+(\d{1,5})\s+typ\s+\w+", re.I
)


_PRIVATE: Final = tuple(
    ipaddress.ip_network(text)
    for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
)


def alternatives(lines: Sequence[tuple[int, str, str]]) -> tuple[Endpoint, ...]:
    """Return further RTP addresses: altc in order, then candidates by priority.

    Without ICE; one of these may be of our family. Names (mDNS), TCP, RTCP's component and group
    addresses are ignored.
    """
    values = [value for _, kind, value in lines if kind == "a"]
    wanted = [value for value in values if value.startswith(("altc:", "candidate:"))]
    altc: list[Endpoint] = []
    candidates: list[tuple[int, Endpoint]] = []
    for value in wanted[:MAX_CANDIDATES]:
        if (match := _ALTC.match(value)) is not None:
            endpoint = _endpoint(match[1], match[2])
            if endpoint is not None:
                altc.append(endpoint)
        elif (match := _CANDIDATE.match(value)) is not None:
            endpoint = _endpoint(match[2], match[3])
            if endpoint is not None:
                candidates.append((int(match[1]), endpoint))
    candidates.sort(key=lambda each: -each[0])
    return tuple(dict.fromkeys((*altc, *(endpoint for _, endpoint in candidates))))


def _endpoint(host: str, port: str) -> Endpoint | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    unusable = address.is_multicast or address.is_unspecified or address.is_link_local
    if unusable or str(address) == "255.255.255.255" or not 0 < int(port) < 65536:
        return None
    return str(address), int(port)


class AddressScope(IntEnum):
    """Scope from which an address can be reached, widening."""

    NOWHERE = 0
    """0.0.0.0 and ::, which mean hold in a description (RFC 2543)."""
    MACHINE = 1
    """Loopback."""
    LINK = 2
    """Link-local (RFC 3927, RFC 4291)."""
    PRIVATE = 3
    """RFC 1918, unique local (RFC 4193), and the addresses behind a carrier's NAT (RFC 6598)."""
    PUBLIC = 4


def address_scope(host: str) -> AddressScope | None:
    """Return the scope of ``host``; None unless numeric."""
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None:
        address = mapped
    if address.is_unspecified:
        return AddressScope.NOWHERE
    if address.is_loopback:
        return AddressScope.MACHINE
    if address.is_link_local:
        return AddressScope.LINK
    if any(address in network for network in _PRIVATE):
        return AddressScope.PRIVATE
    return AddressScope.PUBLIC


def same_address(one: str, other: str) -> bool:
    try:
        return ipaddress.ip_address(one.strip("[]")) == ipaddress.ip_address(other.strip("[]"))
    except ValueError:
        return one.lower() == other.lower()
