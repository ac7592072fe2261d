"""INFO (RFC 6086): keys of a telephone, and whatever else comes that way."""

from __future__ import annotations

import pytest

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.call.state import (
    DTMF,
    DTMF_RELAY,
    CallState,
    DtmfInfo,
    InfoReceived,
    dtmf_relay,
    read_dtmf,
)
from qwen3tts_phone.sip.uas import MAX_INFO_BYTES
from tests.sip.test_prack import invited, provisional, ringing
from tests.sip.wire import Phone, Stranger, pair, request, stranger_up


def test_a_message_that_is_too_long_is_not_handed_on() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    tag = stranger_up(wire, stranger, callee)
    assert info(stranger, callee, tag, "text/plain", b"x" * (MAX_INFO_BYTES + 1)) == 413
    assert not [event for event in callee.events if isinstance(event, InfoReceived)]


def info(
    stranger: Stranger,
    callee: Phone,
    tag: str,
    content_type: str = "",
    body: bytes = b"",
    extra: tuple[tuple[str, str], ...] = (),
) -> int:
    """Send an INFO; gives the status of its answer."""
    message = request("INFO", callee, branch="z9hG4bKi", cseq=2, to_tag=tag, extra=extra)
    if content_type:
        message.add("Content-Type", content_type)
    message.body = body
    stranger.send(message, callee)
    stranger.wire.run(0.1)
    return stranger.statuses()[-1]


@pytest.mark.parametrize(
    ("kind", "body", "key"),
    [
        (DTMF_RELAY, b"Signal=5\r\nDuration=160\r\n", DtmfInfo("5", 160)),
        (DTMF_RELAY, b"Signal= * \r\nDuration= 250 \r\n", DtmfInfo("*", 250)),
        (DTMF_RELAY, b"signal=#\nduration=100", DtmfInfo("#", 100)),
        (DTMF_RELAY, b"Duration=90\r\nSignal=a", DtmfInfo("A", 90)),
        (DTMF_RELAY, b"Signal=11\r\n", DtmfInfo("#", 160)),
        (DTMF_RELAY, b"Signal=7\r\nDuration=soon\r\n", DtmfInfo("7", 160)),
        (DTMF_RELAY, b"Signal=7\r\nDuration=999999999\r\n", DtmfInfo("7", 5000)),
        (DTMF_RELAY, b"Signal=7\r\nDuration=0\r\n", DtmfInfo("7", 1)),
        (DTMF, b"9", DtmfInfo("9", 160)),
        (DTMF, b" 10\r\n", DtmfInfo("*", 160)),
        (DTMF, b"Signal=3\r\nDuration=80\r\n", DtmfInfo("3", 80)),
        ("Application/DTMF-Relay; charset=utf-8", b"Signal=1\r\n", DtmfInfo("1", 160)),
    ],
)
def test_a_key_is_told_as_a_key(kind: str, body: bytes, key: DtmfInfo) -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    tag = stranger_up(wire, stranger, callee)
    assert info(stranger, callee, tag, kind, body) == 200
    assert callee.events[-1] == key


@pytest.mark.parametrize(
    "body", [b"", b"Signal=\r\n", b"Signal=flash", b"Signal=55", b"Signal=16", b"\xff\xfe", b"=5"]
)
def test_a_body_without_a_key_is_400(body: bytes) -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    tag = stranger_up(wire, stranger, callee)
    before = list(callee.events)
    assert info(stranger, callee, tag, DTMF_RELAY, body) == 400
    assert callee.events == before
    assert callee.calls[0].state is CallState.UP


def test_anything_else_is_handed_on_as_it_is() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    tag = stranger_up(wire, stranger, callee)
    assert info(stranger, callee, tag, "Application/Media_Control+XML;v=1", b"<x/>\xff") == 200
    assert callee.events[-1] == InfoReceived("application/media_control+xml", b"<x/>\xff")


def test_an_empty_info_is_a_question_whether_we_are_there() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    tag = stranger_up(wire, stranger, callee)
    assert info(stranger, callee, tag) == 200
    assert callee.events[-1] == InfoReceived("", b"")


def test_a_package_that_we_do_not_take_is_469() -> None:
    """RFC 6086 section 4.2.2."""
    wire, _, callee = pair()
    stranger = Stranger(wire)
    tag = stranger_up(wire, stranger, callee)
    extra = (("Info-Package", "conference"),)
    assert info(stranger, callee, tag, DTMF_RELAY, b"Signal=1", extra) == 469
    assert stranger.got[-1].get("Recv-Info") == ""


def test_a_key_before_the_answer_counts() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    invited(stranger, callee)
    ringing(callee)
    wire.run(0.1)
    tag = provisional(stranger).to.tag or ""
    assert info(stranger, callee, tag, DTMF_RELAY, b"Signal=4") == 200
    assert callee.events == [DtmfInfo("4", 160)]


def test_after_our_bye_there_is_no_call_for_it() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    tag = stranger_up(wire, stranger, callee)
    callee.calls[0].hang_up(wire.now)
    assert info(stranger, callee, tag, DTMF_RELAY, b"Signal=4") == 481


def test_what_we_write_is_what_we_read() -> None:
    for digit in "0123456789*#ABCD":
        assert read_dtmf(DTMF_RELAY, dtmf_relay(digit, 200)) == DtmfInfo(digit, 200)
    assert dtmf_relay("a", 40) == b"Signal=A\r\nDuration=40\r\n"


@pytest.mark.parametrize(("digit", "duration"), [("", 160), ("12", 160), ("x", 160), ("\r", 160)])
def test_a_key_that_is_none_cannot_be_sent(digit: str, duration: int) -> None:
    with pytest.raises(ValueError, match="digit="):
        dtmf_relay(digit, duration)


@pytest.mark.parametrize("duration", [0, -5, 39, 5001])
def test_a_key_has_a_sensible_length(duration: int) -> None:
    with pytest.raises(ValueError, match="duration_ms="):
        dtmf_relay("1", duration)


def test_a_key_of_letters_in_another_script_is_none() -> None:
    with pytest.raises(BadSip):
        read_dtmf(DTMF, "٣".encode())
