"""Fuzz targets: session descriptions, SIP messages and their framing on a stream."""

from __future__ import annotations

import contextlib
import ipaddress
import re

from qwen3tts_phone.errors import BadSdp, BadSip, NoCommonCodec
from qwen3tts_phone.media.types import RemoteMedia
from qwen3tts_phone.sdp import session as sdp
from qwen3tts_phone.sdp.session import Media, SdpSession
from qwen3tts_phone.sip.message.fields import parse_address, parse_uri, parse_via, split_list
from qwen3tts_phone.sip.message.message import (
    MAX_MESSAGE_BYTES,
    Request,
    Response,
    StreamFramer,
    checked_sdp,
    parse_message,
    reply,
)
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.message.via import response_hop, stamp_via
from qwen3tts_phone.sip.transaction.dialog import min_se, session_expires, supports_timer
from qwen3tts_phone.sip.transaction.digest import Digest
from tests.fuzz import sip_examples as examples
from tests.fuzz.target import Target, cuts

HOST_NAME = re.compile(r"[A-Za-z0-9.-]+")
SOURCE = Hop("udp", "192.0.2.9", 5060)


def run_sdp(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    try:
        described = sdp.parse(text)
    except BadSdp:
        return
    for media in described.media:
        _usable(media)
    session = SdpSession("192.0.2.1", 4000)
    try:
        answer, agreed = session.answer(text)
    except (BadSdp, NoCommonCodec):
        return
    # What is agreed must be what the media process takes, of an address that it can send to.
    RemoteMedia(
        agreed.host if _is_ipv4(agreed.host) else "192.0.2.9",
        agreed.port,
        agreed.payload_type,
        agreed.payload_name,
        agreed.ptime_ms,
        agreed.telephone_event_pt,
    )
    assert len(answer) <= len(text) + 1000
    ours = sdp.parse(answer)
    assert [media.kind for media in ours.media] == [media.kind for media in described.media]
    assert ours.audio.port == 4000
    assert session.answer(text)[0] == answer
    caller = SdpSession("192.0.2.1", 4000)
    caller.offer()
    caller.accept(text)
    sdp.parse(session.offer(session.holding))


def _usable(media: Media) -> None:
    assert 0 <= media.port <= 65535
    try:
        ipaddress.ip_address(media.host)
    except ValueError:
        assert HOST_NAME.fullmatch(media.host), ascii(media.host)
    assert "%" not in media.host
    assert media.host.isascii()
    assert media.host.isprintable()
    assert len(media.host) <= 255
    assert all(0 <= payload.payload_type <= 127 for payload in media.payloads)


def _is_ipv4(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def run_sip_message(data: bytes) -> None:
    try:
        message = parse_message(data)
    except BadSip:
        return
    again = parse_message(bytes(message))
    assert (again.call_id, again.cseq, again.body) == (message.call_id, message.cseq, message.body)
    assert again.from_.tag == message.from_.tag
    assert (message.contact_uri or "").isprintable()
    for line in message.headers.getlist("Contact"):
        for value in split_list(line):
            for read in (parse_address, parse_uri, parse_via):
                with contextlib.suppress(BadSip):
                    read(value)
    session_expires(message)
    min_se(message)
    supports_timer(message)
    with contextlib.suppress(BadSip):
        checked_sdp(message)
    if isinstance(message, Response):
        digest = Digest("alice", "secret")
        request = Request("INVITE", "sip:a@b")
        request.add("To", "<sip:a@b>")
        digest.answerable(message, request, SOURCE)
        digest.authorize(request, SOURCE)
    else:
        _answerable(message)


def _answerable(request: Request) -> None:
    try:
        stamp_via(request, SOURCE)
        hop = response_hop(request, SOURCE)
    except BadSip:
        return
    assert 0 < hop.port < 65536
    response = parse_message(bytes(reply(request, 200, to_tag="ours")))
    assert isinstance(response, Response)
    assert response.branch == request.branch
    assert response.to.tag == (request.to.tag or "ours")


def run_sip_stream(data: bytes) -> None:
    whole, pings, ended = _framed([data])
    singly, pings_singly, ended_singly = _framed(cuts(data, 1))
    by_some, pings_by_some, ended_by_some = _framed(cuts(data, 1 + len(data) % 97))
    assert ended == ended_singly == ended_by_some
    assert ended or pings == pings_singly == pings_by_some
    # A push that raises keeps back the messages before the error.
    assert singly[: len(whole)] == whole
    assert singly[: len(by_some)] == by_some
    assert ended or singly == whole == by_some
    assert sum(map(len, singly)) <= len(data)
    for message in singly:
        assert len(message) <= MAX_MESSAGE_BYTES
        with contextlib.suppress(BadSip):
            parse_message(message)


def _framed(pieces: list[bytes]) -> tuple[list[bytes], int, bool]:
    """The messages cut out, the keep-alives, and whether the stream was found unusable."""
    framer = StreamFramer()
    messages: list[bytes] = []
    try:
        for piece in pieces:
            messages += framer.push(piece)
    except BadSip:
        return messages, framer.pings, True
    return messages, framer.pings, False


TARGETS = {
    "sdp": Target(
        run_sdp,
        "A description is BadSdp or NoCommonCodec, or has a short answer that fits it line by line"
        " and media that can be sent to.",
        examples.DESCRIPTIONS,
        examples.SDP_WORDS,
        most_bytes=3000,
    ),
    "sip_message": Target(
        run_sip_message,
        "A datagram is BadSip, or a message of which every field is a value or BadSip, and which"
        " is written, answered and read again as itself.",
        examples.MESSAGES,
        examples.SIP_WORDS,
    ),
    "sip_stream": Target(
        run_sip_stream,
        "A stream gives the same messages and keep-alives, or BadSip, wherever it was cut.",
        (b"".join(examples.MESSAGES[:2]), b"\r\n\r\n" + examples.MESSAGES[2], examples.MESSAGES[3]),
        examples.SIP_WORDS,
    ),
}
