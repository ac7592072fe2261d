"""SIP messages, streams, headers and bodies."""

from __future__ import annotations

import contextlib

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.call.outgoing import rseq_of
from qwen3tts_phone.sip.call.state import DIGITS, DTMF, DTMF_RELAY, read_dtmf, reasons
from qwen3tts_phone.sip.call.transfer import read_status, write_status
from qwen3tts_phone.sip.message.fields import (
    CallHeaders,
    check_headers,
    parse_address,
    parse_uri,
    parse_via,
    split_list,
)
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
from qwen3tts_phone.sip.transaction.dialog import (
    ReferTo,
    Replaces,
    min_se,
    session_expires,
    supports_timer,
)
from qwen3tts_phone.sip.transaction.digest import Digest
from tests.fuzz.target import Target, chunks, sequence

OFFER = (
    "v=0\r\no=- 1 1 IN IP4 192.0.2.9\r\ns=-\r\nc=IN IP4 192.0.2.9\r\nt=0 0\r\n"
    "m=audio 40000 RTP/AVP 0 8 101\r\na=rtpmap:0 PCMU/8000\r\na=rtpmap:8 PCMA/8000\r\n"
    "a=rtpmap:101 telephone-event/8000\r\na=fmtp:101 0-15\r\na=ptime:20\r\na=sendrecv\r\n"
)

HELD = OFFER.replace("sendrecv", "sendonly").replace("o=- 1 1", "o=- 1 2")

RICH = (
    "v=0\r\no=them 77 3 IN IP6 2001:db8::1\r\ns=A call\r\nb=AS:64\r\nt=0 0\r\na=recvonly\r\n"
    "m=video 5000/2 RTP/AVPF 96\r\nc=IN IP4 192.0.2.9/127\r\na=rtpmap:96 H264/90000\r\n"
    "m=audio 5004 RTP/AVP 97 8\r\nc=IN IP6 2001:db8::1\r\na=rtpmap:97 opus/48000/2\r\n"
    "a=maxptime:30\r\na=inactive\r\nm=application 0 TCP/MSRP *\r\n"
)

DESCRIPTIONS = (OFFER.encode(), HELD.encode(), RICH.encode(), OFFER.replace("\r\n", "\n").encode())

SDP_WORDS = (
    *(b"000000000", b"%0", b"IP6 "),
    *(b"v=0\r\n", b"o=- 1 1 IN IP4 ", b"c=IN IP4 ", b"c=IN IP6 ::1", b"m=audio ", b"m=video 0 "),
    *(b"RTP/AVP", b"RTP/SAVP", b"a=rtpmap:", b"PCMU/8000", b"PCMA/8000/1", b"a=ptime:", b"a=fmtp:"),
    *(
        b"a=maxptime:",
        b"telephone-event/8000",
        b"a=sendonly",
        b"a=inactive",
        b"0.0.0.0",
        b"fe80::1%",
    ),
)


def message(start: str, *lines: str, body: str = "") -> bytes:
    """A message with the length of its body."""
    head = [start, *lines, f"Content-Length: {len(body)}"]
    if body:
        head.insert(-1, "Content-Type: application/sdp")
    return "\r\n".join([*head, "", body]).encode()


VIA = "Via: SIP/2.0/UDP 192.0.2.9:5060;branch=z9hG4bK{};rport"

CONTACT = "Contact: <sip:them@192.0.2.9:5060>"


def request(
    method: str, *extra: str, branch: str = "", cseq: int = 1, tag: str = "", body: str = ""
) -> bytes:
    """A request to the agent at 192.0.2.1, as a stranger writes it."""
    return message(
        f"{method} sip:agent@192.0.2.1:5060 SIP/2.0",
        VIA.format(branch or f"{method}{cseq}"),
        "Max-Forwards: 70",
        'From: "Them" <sip:them@192.0.2.9>;tag=theirs',
        "To: <sip:agent@192.0.2.1>" + (f";tag={tag}" if tag else ""),
        "Call-ID: fuzz",
        f"CSeq: {cseq} {method}",
        CONTACT,
        *extra,
        body=body,
    )


def response(status: int, *extra: str, body: str = "", method: str = "%M") -> bytes:
    """A response to the agent's last request; for the words in % see the agent's target."""
    return message(
        f"SIP/2.0 {status} So",
        "Via: SIP/2.0/UDP 192.0.2.1:5060;branch=%B;rport",
        "From: <sip:agent@192.0.2.1:5060>;tag=%F",
        "To: <sip:them@192.0.2.9>;tag=theirs",
        "Call-ID: %I",
        f"CSeq: %N {method}",
        CONTACT,
        *extra,
        body=body,
    )


CHALLENGE = 'WWW-Authenticate: Digest realm="r", nonce="n\\"1", qop="auth,auth-int", algorithm=MD5'
FILLED = {b"%B": b"z9hG4bKx", b"%F": b"ours", b"%I": b"fuzz", b"%N": b"1", b"%M": b"INVITE"}


def filled(data: bytes) -> bytes:
    """A response with something for its words in %."""
    for word, value in FILLED.items():
        data = data.replace(word, value)
    return data


COMPACT = (
    b"INVITE sip:agent@192.0.2.1 SIP/2.0\r\nv: SIP/2.0/TCP h.example;branch=z9hG4bK1\r\n"
    b'f: sip:a@b;tag=1\r\nt: "x, <y>" <sip:c@d>\r\ni: 1\r\nCSeq:\r\n 1  INVITE\r\n'
    b"m: <sip:a@[2001:db8::1]:5070;transport=tcp>;q=0.5, <tel:+49301234>\r\nk: timer\r\n"
    b"x: 1800;refresher=uas\r\nRecord-Route: <sip:p1;lr>,<sip:p2>\r\nl: 0\r\n\r\n"
)

MESSAGES = (
    request("INVITE", body=OFFER),
    request("BYE", 'Reason: Q.850;cause=16;text="Bye"', cseq=2, tag="ours"),
    COMPACT,
    filled(response(200, "Session-Expires: 90;refresher=uac", "Require: timer", body=OFFER)),
    filled(response(401, CHALLENGE)),
    filled(response(422, "Min-SE: 120")),
    request("OPTIONS", "Require: 100rel", "Route: <sip:192.0.2.1;lr>", "Accept-Encoding: gzip"),
)

SIP_WORDS = (
    *(b"SIP/2.0", b"INVITE ", b"ACK ", b"BYE ", b"CANCEL ", b"OPTIONS ", b"REGISTER ", b"\r\n\r\n"),
    *(b"\r\nVia: ", b"\r\nFrom: ", b"\r\nTo: ", b"\r\nCall-ID: ", b"\r\nCSeq: ", b"\r\nContact: "),
    *(b"\r\nRoute: ", b"\r\nRecord-Route: ", b"\r\nRequire: ", b"\r\nContent-Length: ", b";tag="),
    *(b"\r\nMax-Forwards: 0", b"\r\nContent-Type: ", b";branch=z9hG4bK", b";received=", b";rport="),
    *(b";transport=tcp", b";lr", b"sip:", b"sips:", b"tel:", b"[::1]", b":65536", b"\r\n ", b"%41"),
    *(b"\r\nSession-Expires: ", b"\r\nMin-SE: ", b"\r\nWWW-Authenticate: Digest ", b"\r\nl: "),
)


SOURCE = Hop("udp", "192.0.2.9", 5060)


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
    for field in (
        lambda: message.via,
        lambda: message.branch,
        lambda: message.to.tag,
        lambda: message.contact,
        lambda: message.sdp,
        lambda: message.values("Record-Route"),
    ):
        with contextlib.suppress(BadSip):
            field()
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
    singly, pings_singly, ended_singly = _framed(chunks(data, 1))
    by_some, pings_by_some, ended_by_some = _framed(chunks(data, 1 + len(data) % 97))
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


def run_dialog_headers(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    with contextlib.suppress(BadSip):
        replaces = Replaces.parse(text)
        assert Replaces.parse(replaces.value) == replaces
        assert not any(char.isspace() for char in replaces.value)
    with contextlib.suppress(BadSip):
        refer_to = ReferTo.parse(text)
        # What is handed on may be called; it is written again as itself, or not at all.
        again = ReferTo.parse(refer_to.value)
        assert again == refer_to
    response = Response(183, "So")
    for name in ("Reason", "RSeq", "P-Asserted-Identity"):
        response.headers.set(name, text)
    response.headers.set("Require", "100rel")
    for reason in reasons(response):
        assert reason.cause is None or 0 <= reason.cause <= 999
        assert str(reason)
    rseq = rseq_of(response)
    assert rseq is None or 1 <= rseq < 2**32
    uri = CallHeaders(response.headers).uri("p-asserted-identity")
    assert uri is None or uri in text
    _custom(text)


def _custom(text: str) -> None:
    """Header lines that a program wants to add: refused, or one line and no more."""
    name, _, value = text.partition(":")
    try:
        lines = check_headers({name: value})
    except BadSip:
        return
    request = Request("OPTIONS", "sip:a@b")
    for own in ("Via: SIP/2.0/UDP h;branch=z9hG4bKx", "From: <sip:a@b>;tag=1", "To: <sip:c@d>"):
        request.add(*own.split(": ", 1))
    request.add("Call-ID", "x")
    request.add("CSeq", "1 OPTIONS")
    request.add_all(lines)
    read = parse_message(bytes(request))
    assert len(read.headers.keys()) == len(request.headers.keys())
    assert CallHeaders(read.headers).get(name) == value.strip(" \t")


def run_dialog_bodies(data: bytes) -> None:
    for kind in (DTMF, DTMF_RELAY):
        with contextlib.suppress(BadSip):
            key = read_dtmf(kind, data)
            assert key.digit in DIGITS
            assert len(key.digit) == 1
            assert 0 < key.duration_ms <= 5000
    read = read_status(data)
    if read is not None:
        status, reason = read
        assert 100 <= status <= 699
        assert read_status(write_status(status, reason)) is not None
        assert write_status(status, reason).count(b"\r\n") == 1


HEADERS = (
    b"a@b;to-tag=t;from-tag=f;early-only",
    b'"Carol" <sip:carol@h.example:5070;transport=tcp?Replaces=a%40b%3Bto-tag%3Dt%3Bfrom-tag%3Df>',
    b"<tel:+4930123456>",
    b'SIP;cause=200;text="Call completed elsewhere", Q.850;cause=16',
    b"4294967295",
    b"X-Order: 17; colour=green",
    b"<tel:+49301>, <sip:alice@example.com;user=phone>",
)

BODIES = (
    b"Signal=5\r\nDuration=160\r\n",
    b"Signal= 11\r\nDuration= 250 \r\n",
    b"9",
    b"SIP/2.0 486 Busy Here\r\nContact: <sip:x@y>\r\n",
)

WORDS = (
    *(b";to-tag=", b";from-tag=", b";early-only", b"?Replaces=", b"&Replaces=", b"%3B", b"%00"),
    *(b"sip:", b"tel:", b";method=INVITE", b";cause=", b';text="', b"SIP/2.0 ", b"Signal="),
    *(b"\r\nDuration=", b"\xff\xff", b"<", b">", b",", b'"', b"\\", b"\r\n", b": "),
)

INVITE = request("INVITE", body=OFFER)

TARGETS = {
    "sip_message": Target(
        run_sip_message,
        "A datagram is BadSip, or a message of which every field is a value or BadSip, and which"
        " is written, answered and read again as itself.",
        MESSAGES,
        SIP_WORDS,
        hard=(
            b"\r\n" * 9,
            b"SIP/2.0 200\r\n\r\n",
            INVITE.replace(b"CSeq: 1 INVITE", b"CSeq: 4294967296 INVITE"),
            INVITE.replace(b"CSeq: 1 INVITE", "CSeq: \u0661 INVITE".encode()),
            INVITE.replace(b"CSeq: 1 INVITE", b"CSeq: 1 BYE"),
            INVITE.replace(b"Content-Length: ", b"Content-Length: 99999999999"),
            INVITE.replace(b"Max-Forwards", b"Content-Length: 5\r\nMax-Forwards"),
            INVITE.replace(b":5060;branch", b":99999;branch"),
            INVITE.replace(b"192.0.2.9:5060;branch", b"[::1;branch"),
            INVITE.replace(b";rport", b";rport=;RPORT=5;received=x"),
            INVITE.replace(b'"Them"', b'"Th\\"em, <sip:x>;tag=a'),
            INVITE.replace(b'"Them"', b"\xff\xfe"),
            INVITE.replace(b"Max-Forwards: 70", b" folded\r\n\tagain: x"),
            INVITE.replace(b"Max-Forwards: 70", b"X: a\rVia: b"),
            INVITE.replace(b"<sip:them@192.0.2.9:5060>", b"<sip:%zz@[::1]:0;lr>;q=\xc3\xa9"),
            INVITE.replace(b"Call-ID: fuzz\r\n", b"Call-ID: \r\n"),
            COMPACT.replace(b"Record-Route: ", b"Record-Route: " + b"<sip:p;lr>," * 60),
            filled(response(401, 'WWW-Authenticate: Digest realm="\\", nonce=x, nonce="')),
        ),
    ),
    "sip_stream": Target(
        run_sip_stream,
        "A stream gives the same messages and keep-alives, or BadSip, wherever it was cut.",
        (b"".join(MESSAGES[:2]), b"\r\n\r\n" + MESSAGES[2], MESSAGES[3]),
        SIP_WORDS,
        hard=(
            b"\r\n" * 20,
            b"l: 5\r\n\r\n123456",
            b"A" * 16384 + b"\r\n\r\n",
            INVITE.replace(b"Content-Length: ", b"l: 1\r\nContent-Length: "),
            INVITE.replace(b"Content-Length: ", b"Content-Length: -"),
            INVITE.replace(b"Content-Length: ", b"Content-Length: 9999999999"),
            INVITE.replace(b"\r\n", b"\n"),
            INVITE * 3,
        ),
    ),
    "dialog_headers": Target(
        run_dialog_headers,
        "Replaces, Refer-To, Reason, RSeq and identities are BadSip or a value that is written"
        " again as itself, and a header of a program's own is one line or BadSip.",
        HEADERS,
        WORDS,
        max_bytes=3000,
        hard=(
            b"x;to-tag=\x00;from-tag=\xff",
            b"x;to-tag=a;from-tag=b;to-tag=c",
            b"<sip:a@b?Replaces=x%3Bto-tag%3Da%3Bfrom-tag%3Db&replaces=y>",
            b"<sip:a@b?Replaces=%>",
            b"<sip:a@b?" + b"a=b&" * 500 + b">",
            b"<sip:a@b;method=%42YE>",
            b"sip:a@b?Replaces=a%0d%0aEvil%3a%20x%3Bto-tag%3Dt%3Bfrom-tag%3Df",
            b"<sip:a@[::1]:5060?Replaces=x%3Bto-tag%3D%2B%3Bfrom-tag%3D%26>",
            b'SIP;text="' + b'\\"' * 400,
            b"," * 900,
            "\u0664\u0660".encode(),
            b"Via: x",
            b"v: x",
            b"X-A: 1\r\nEvil: x",
            b"X-A:1\x00",
            b"X-A: \xc2\x85x",
        ),
    ),
    "dialog_bodies": Target(
        run_dialog_bodies,
        "The body of an INFO or NOTIFY is a key of a telephone, a status, or neither.",
        BODIES,
        WORDS,
        max_bytes=1000,
        hard=(
            b"=" * 200,
            b"Signal=5" * 100,
            b"Signal=" + "\u0665".encode(),
            b"Signal=5\r\nDuration=" + b"9" * 300,
            b"SIP/2.0 200 " + b"\x00\x0d\x0a" * 90,
            b"\r\n" * 300 + b"SIP/2.0 200 OK",
            b"SIP/2.0 200 " + b"\xff" * 600,
            sequence(b"1", b"2"),
        ),
    ),
}
