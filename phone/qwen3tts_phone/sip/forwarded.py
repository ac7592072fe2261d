"""Where a request came from that a proxy on this machine has passed on (pure)."""

from __future__ import annotations

import socket
from itertools import islice

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.fields import parse_via
from qwen3tts_phone.sip.message import Request
from qwen3tts_phone.sip.networks import Address, address_of

FORWARDED = "forwarded"
"""Stands for all sources that a proxy on this machine does not tell."""
MAX_PROXIES = 8
"""Proxies on this machine that are looked behind."""


def origin_of(request: Request, host: str) -> str:
    """Return the host that a request is judged by: its source, or what a local proxy saw.

    A request from the loopback address with one Via was made on this machine, unless that Via names
    a host that no program here answers under: a tunnel or port forwarder has passed it on. One with
    more was passed on by a proxy here (RFC 3261 section 16.6), which has noted in the Via beneath
    its own where it came from (section 18.2.1): ``received``, or sent-by where that is the same.
    Where all of them are loopback addresses it never left this machine.

    A stranger behind a tunnel may write a loopback address into his Via: where there is a tunnel,
    no loopback network may be trusted (setting ``safety.gate.trusted``).
    """
    source = address_of(host)
    if source is None or not source.is_loopback:
        return host
    values = request.values("Via")
    if len(values) < 2:
        return host if all(map(_is_of_this_machine, values)) else FORWARDED
    for value in islice(values, 1, 1 + MAX_PROXIES):
        try:
            via = parse_via(value)
        except BadSip:
            return FORWARDED
        received = next((v for k, v in via.parameters.items() if k.lower() == "received"), None)
        address = address_of(received or via.host)
        if address is None:
            return FORWARDED
        if not address.is_loopback:
            return str(address)
    return host if len(values) <= 1 + MAX_PROXIES else FORWARDED


def _is_of_this_machine(value: str) -> bool:
    try:
        address = address_of(parse_via(value).host)
    except BadSip:
        return False
    # A name is what some phones call themselves by; an address of another machine is not.
    return address is None or address.is_loopback or _is_own(address)


def _is_own(address: Address) -> bool:
    """Return whether this machine has the address: then a socket can be bound to it."""
    if address.is_unspecified or address.is_multicast or address.is_reserved:
        return False
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True
