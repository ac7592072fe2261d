"""Fuzz target: what requests inside a dialog, and those that begin one, say in their headers."""

from __future__ import annotations

import contextlib

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.call.outgoing import rseq_of
from qwen3tts_phone.sip.call.state import DIGITS, DTMF, DTMF_RELAY, read_dtmf, reasons
from qwen3tts_phone.sip.call.transfer import read_status, write_status
from qwen3tts_phone.sip.message.fields import CallHeaders, check_headers
from qwen3tts_phone.sip.message.message import Request, Response, parse_message
from qwen3tts_phone.sip.transaction.dialog import ReferTo, Replaces
from tests.fuzz.target import Target, story


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
TARGETS = {
    "dialog_headers": Target(
        run_dialog_headers,
        "Replaces, Refer-To, Reason, RSeq and identities are BadSip or a value that is written"
        " again as itself, and a header of a program's own is one line or BadSip.",
        HEADERS,
        WORDS,
        most_bytes=3000,
    ),
    "dialog_bodies": Target(
        run_dialog_bodies,
        "The body of an INFO or NOTIFY is a key of a telephone, a status, or neither.",
        BODIES,
        WORDS,
        most_bytes=1000,
    ),
}
HARD: dict[str, tuple[bytes, ...]] = {
    "dialog_headers": (
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
    "dialog_bodies": (
        b"=" * 200,
        b"Signal=5" * 100,
        b"Signal=" + "\u0665".encode(),
        b"Signal=5\r\nDuration=" + b"9" * 300,
        b"SIP/2.0 200 " + b"\x00\x0d\x0a" * 90,
        b"\r\n" * 300 + b"SIP/2.0 200 OK",
        b"SIP/2.0 200 " + b"\xff" * 600,
        story(b"1", b"2"),
    ),
}
