"""Further addresses of a media line: altc (RFC 6947) and ICE candidates (RFC 8839), read in bounds.

We speak no ICE. Where a line's own address is of a family that we have no socket of, one of these
may be of ours: phones with both families often describe IPv6 first, also over IPv4 signalling.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

MAX_CANDIDATES = 64
"""Most lines of these kinds that are looked at."""
Endpoint = tuple[str, int]
"""Numeric host and port."""

_ALTC = re.compile(r"altc:\s*\d{1,3}\s+IP[46]\s+(\S{1,45})\s+(\d{1,5})")
_CANDIDATE = re.compile(
    r"candidate:\S{1,32}\s+1\s+udp\s+(\d{1,10})\s+(\S{1,45})\s+(\d{1,5})\s+typ\s+\w+", re.I
)


def alternatives(lines: Sequence[tuple[int, str, str]]) -> tuple[Endpoint, ...]:
    """The addresses for RTP over UDP: altc in its order, then candidates by priority.

    What cannot be used is passed by: a name (mDNS), TCP, RTCP's component, a group's address.
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
