"""Via: response address and observed source.

A phone behind a NAT often writes a private Contact: requests then go to the source of its
message, never to another address of its choice.
"""

from __future__ import annotations

import socket
from dataclasses import replace
from itertools import islice

from sipmessage import URI

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.message.fields import is_ip, parse_uri, parse_via, uri_parameter
from qwen3tts_phone.sip.message.message import Request, Response
from qwen3tts_phone.sip.message.network import Address, Hop, address_of, behind_nat


def stamp_via(request: Request, source: Hop) -> None:
    """Add ``received`` and ``rport`` to the top Via (RFC 3581 section 4)."""
    lines = request.headers.getlist("Via")
    values = request.values("Via")
    via = parse_via(values[0])
    names = {name.lower() for name in via.parameters}
    text = values[0]
    if "rport" in names:
        wanted = next(v for k, v in via.parameters.items() if k.lower() == "rport")
        if not wanted:
            head, _, tail = _split_parameter(text, "rport")
            text = f"{head};rport={source.port}{tail}"
    if "received" not in names and ("rport" in names or via.host.strip("[]") != source.host):
        text += f";received={source.host}"
    lines[:] = [text, *values[1:]]


def _split_parameter(text: str, name: str) -> tuple[str, str, str]:
    parts = text.split(";")
    for index, part in enumerate(parts[1:], 1):
        if part.partition("=")[0].strip().lower() == name:
            tail = ";".join(parts[index + 1 :])
            return ";".join(parts[:index]), part, f";{tail}" if tail else ""
    return text, "", ""


def response_hop(request: Request, source: Hop) -> Hop:
    """Return the hop of the response (RFC 3261 section 18.2.2, RFC 3581 section 4)."""
    via = request.via
    rport = any(name.lower() == "rport" for name in via.parameters)
    if source.reliable:
        # The connection it came by; if that is gone, a new one to the port of Via.
        default = 5061 if source.transport == "tls" else 5060
        port = via.port or default
        secure = request.uri[:5].lower() == "sips:"
        return Hop(source.transport, source.host, port, source.flow, by_flow=True, secure=secure)
    port = source.port if rport else via.port or 5060
    return Hop(source.transport, source.host, port, source.flow)


def loose_route(uri: str) -> str:
    return uri if uri_parameter(parse_uri(uri), "lr") is not None else f"{uri};lr"


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def uri_at_server(uri: str, server: str) -> str:
    wanted, other = parse_uri(uri), parse_uri(server)
    user = wanted.user if wanted.scheme != "tel" else uri.partition(":")[2].partition(";")[0]
    port = f":{other.port}" if other.port is not None else ""
    transport = uri_parameter(other, "transport")
    tail = f";transport={transport}" if transport else ""
    return f"{other.scheme}:{f'{user}@' if user else ''}{bracketed(other.host)}{port}{tail}"


def mapped_address(response: Response) -> tuple[str, int] | None:
    """Return our host and port as the far end saw them (RFC 3581), or None."""
    values = response.values("Via")
    via = parse_via(values[0])
    said = {name.lower(): value or "" for name, value in via.parameters.items()}
    host = received_host(values[0]) or (via.host.strip("[]") if "rport" in said else "")
    port = said.get("rport", "")
    if not is_ip(host) or (port and not (port.isascii() and port.isdigit())):
        return None
    number = int(port) if port else via.port or (5061 if via.transport.upper() == "TLS" else 5060)
    return (host, number) if 0 < number < 65536 else None


def received_host(value: str) -> str:
    for part in value.split(";")[1:]:
        name, _, host = part.partition("=")
        if name.strip().lower() == "received":
            return host.strip().strip("[]")
    return ""


def observed_source(message: Request | Response) -> Hop | None:
    """Return the source of a message whose Contact is private; else None."""
    source, contact = message.source, message.contact
    if source is None or contact is None:
        return None
    try:
        uri = parse_uri(contact.uri)
    except BadSip:
        return None
    if behind_nat(uri.host, source.host) or _port_changed(message, uri, source):
        return source
    return None


def contact_hop(hop: Hop, seen: Hop | None) -> Hop:
    """Return the hop to a Contact, or to its observed source. Secure hops stay."""
    # A stream finds its connection by itself (see ``stream.py``), unless the Contact says UDP.
    if seen is None or hop.secure or hop.transport == "tls":
        return hop
    if seen.transport == "udp":
        return replace(seen, name=hop.name, fixed=True)
    return replace(seen, name=hop.name, by_flow=True) if hop.transport == "udp" else hop


def _port_changed(message: Request | Response, uri: URI, source: Hop) -> bool:
    # Return whether a phone knows its NAT's host, but not its mapped port.
    # It asks for ``rport`` (RFC 3581), and its only Via names an address of its network.
    if not isinstance(message, Request) or source.transport != "udp":
        return False
    if len(message.values("Via")) != 1 or not behind_nat(message.via.host, source.host):
        return False
    asked = any(name.lower() == "rport" for name in message.via.parameters)
    same = address_of(uri.host) == address_of(source.host)
    return asked and same and (uri.port or 5060) != source.port


FORWARDED = "forwarded"
"""Key of all sources that a local proxy hides."""
MAX_PROXIES = 8
"""Local proxies that are looked behind."""


def origin_of(request: Request, host: str) -> str:
    """Return the source host, as a local proxy saw it where it hides it."""
    # A loopback request with one Via was made on this machine, unless that Via names another host:
    # then a tunnel or port forwarder passed it on. With more, a local proxy forwarded it (RFC 3261
    # section 16.6), and the Via beneath its own holds the origin (section 18.2.1): ``received``, or
    # sent-by. Where all are loopback it never left this machine.
    # A stranger behind a tunnel may forge a loopback Via: there, no loopback network may be trusted
    # (setting ``safety.gate.trusted``).
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
    if address.is_unspecified or address.is_multicast or address.is_reserved:
        return False
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True
