"""Where a peer is to be asked whose Contact only its own network knows (pure).

A phone behind a NAT often writes the address of its own network. What reaches it is what is sent
to where its own message came from; no other address of its choosing is ever used instead.
"""

from __future__ import annotations

from dataclasses import replace

from sipmessage import URI

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.fields import parse_uri
from qwen3tts_phone.sip.hop import Hop
from qwen3tts_phone.sip.message import Request, Response
from qwen3tts_phone.sip.networks import address_of, behind_nat


def seen_at(message: Request | Response) -> Hop | None:
    """Where a message came from, if its Contact is of no use from outside; else None."""
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


def hop_by(hop: Hop, seen: Hop | None) -> Hop:
    """The hop to a Contact, or the one to where its owner was seen. Secure ones stay as they are.

    A stream finds its connection by itself (see ``stream.py``), unless the Contact says UDP.
    """
    if seen is None or hop.secure or hop.transport == "tls":
        return hop
    if seen.transport == "udp":
        return replace(seen, name=hop.name, fixed=True)
    return replace(seen, name=hop.name, by_flow=True) if hop.transport == "udp" else hop


def _port_changed(message: Request | Response, uri: URI, source: Hop) -> bool:
    """Whether a phone knows its NAT's host, but not its port for us.

    It asks for ``rport`` (RFC 3581), and its Via, the only one, names an address of its network.
    """
    if not isinstance(message, Request) or source.transport != "udp":
        return False
    if len(message.values("Via")) != 1 or not behind_nat(message.via.host, source.host):
        return False
    asked = any(name.lower() == "rport" for name in message.via.parameters)
    same = address_of(uri.host) == address_of(source.host)
    return asked and same and (uri.port or 5060) != source.port
