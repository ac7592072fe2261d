"""Header lines of a program's own on our messages, and theirs as a program reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sipmessage import Headers

from qwen3tts_phone.errors import BadSip, CallRefused
from qwen3tts_phone.sip.call.state import (
    DTMF,
    DTMF_RELAY,
    CallState,
    DtmfInfo,
    InfoReceived,
    Reason,
    dtmf_relay,
    read_dtmf,
    reasons,
)
from qwen3tts_phone.sip.message.fields import OURS, CallHeaders, check_headers
from qwen3tts_phone.sip.message.message import Response, reply
from qwen3tts_phone.sip.transaction.digest import Digest
from qwen3tts_phone.sip.uas import MAX_INFO_BYTES
from qwen3tts_phone.sip.user_agent import CallOrigin
from tests.sip.wire import (
    ANSWER,
    OFFER,
    Phone,
    Stranger,
    challenging,
    ended,
    invited,
    pair,
    provisional,
    request,
    ringing,
    stranger_up,
)

ALLOWED = {
    "X-Order": "17; colour=green",
    "P-Preferred-Identity": '"We" <sip:us@example.com>',
    "P-Asserted-Identity": "<tel:+4930123456>",
    "Diversion": "<sip:desk@example.com>;reason=no-answer",
    "Subject": "über uns",
    "Reason": 'Q.850;cause=16;text="Normal call clearing"',
}


def headers_of(*lines: tuple[str, str]) -> CallHeaders:
    headers = Headers()
    for name, value in lines:
        headers.add(name, value)
    return CallHeaders(headers)


def test_those_of_an_invite_arrive_and_those_of_the_answer_come_back() -> None:
    wire, caller, callee = pair()
    callee.answers_with = None
    call = caller.agent.place(callee.uri, OFFER, wire.now, headers=ALLOWED)
    call.notify = caller.events.append
    wire.run(0.1)
    theirs = callee.calls[0].headers
    assert {name: theirs[name] for name in ALLOWED} == ALLOWED
    callee.calls[0].ring(wire.now, headers={"X-Ring": "1"})
    callee.calls[0].answer(ANSWER, wire.now, headers={"X-Answer": "2"})
    wire.run(0.2)
    assert call.answer_headers["x-answer"] == "2"
    assert "X-Ring" not in call.answer_headers
    assert wire.sent("180 INVITE")[0].message.get("X-Ring") == "1"
    call.hang_up(wire.now, {"X-Bye": "3", "Reason": 'SIP;cause=200;text="Done"'})
    wire.run(0.1)
    end = ended(callee)
    assert end.headers["X-Bye"] == "3"
    assert end.reason == "Done"
    assert end.causes == (Reason("SIP", 200, "Done"),)


def test_those_of_a_refusal_come_with_the_end() -> None:
    wire, caller, callee = pair()
    callee.answers_with = None
    caller.call(callee)
    wire.run(0.1)
    callee.calls[0].reject(486, wire.now, headers={"X-Why": "lunch", "Reason": "Q.850;cause=17"})
    wire.run(0.1)
    end = ended(caller)
    assert (end.status, end.headers["x-why"]) == (486, "lunch")
    assert end.causes == (Reason("Q.850", 17),)


def test_the_reason_of_a_cancel_is_told() -> None:
    """As when another telephone has answered."""
    wire, _, callee = pair()
    callee.answers_with = None
    stranger = Stranger(wire)
    stranger.send(request("INVITE", callee, sdp=OFFER), callee)
    wire.run(0.1)
    extra = (("Reason", 'SIP;cause=200;text="Call completed elsewhere"'),)
    stranger.send(request("CANCEL", callee, extra=extra), callee)
    wire.run(0.1)
    assert str(ended(callee).causes[0]) == "Call completed elsewhere"
    assert ended(callee).status == 487


def test_a_cancel_of_ours_may_say_why() -> None:
    wire, caller, callee = pair()
    callee.answers_with = None
    call = caller.call(callee)
    wire.run(0.1)
    with pytest.raises(BadSip):
        call.hang_up(wire.now, {"Via": "x"})
    call.hang_up(wire.now, {"Reason": 'SIP;cause=200;text="Call completed elsewhere"'})
    wire.run(0.1)
    assert [str(reason) for reason in ended(callee).causes] == ["Call completed elsewhere"]


def test_they_stay_when_a_challenge_is_answered() -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)
    challenging(stranger, (407, 'Digest realm="r", nonce="n"'))
    caller.agent.place(
        stranger.uri, OFFER, wire.now, headers=ALLOWED, digest=Digest("us", "secret")
    )
    wire.run(0.2)
    first, second = wire.requests("INVITE")
    for name, value in ALLOWED.items():
        assert first.get(name) == second.get(name) == value


WRONG = {
    "a line break in a value": {"X-A": "1\r\nEvil: x"},
    "a lone line feed": {"X-A": "1\nEvil: x"},
    "a zero": {"X-A": "1\x00"},
    "a tab": {"X-A": "1\t2"},
    "a colon in a name": {"X-A: 1\r\nEvil": "x"},
    "a space in a name": {"X A": "x"},
    "no name": {"": "x"},
    "a name in another script": {"Ünder": "x"},
    "too long a name": {"X" * 65: "x"},
    "too long a value": {"X-A": "x" * 2049},
    "too many": {f"X-{n}": "x" for n in range(33)},
    "a value that is no text": {"X-A": 5},
}


@pytest.mark.parametrize("headers", WRONG.values(), ids=WRONG.keys())
def test_what_would_break_a_message_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(BadSip):
        check_headers(headers)


@pytest.mark.parametrize("name", [*sorted(OURS), "Via", "CALL-ID", "f", "v", "L", "m", "k"])
def test_what_we_write_ourselves_cannot_be_set(name: str) -> None:
    with pytest.raises(BadSip, match="itself"):
        check_headers({name: "x"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"headers": {"X-A": "\udcff"}},
        {"origin": CallOrigin(display_name="\udcff")},
        {"origin": CallOrigin("sip:\udcff@x")},
        {"origin": CallOrigin(user="\udcff")},
        {"origin": CallOrigin(user="a\r\nX: y")},
        {"origin": CallOrigin(display_name='x"\r\nX: y')},
    ],
)
def test_what_cannot_be_written_is_refused_by_name_before_anything_is_sent(
    wrong: dict[str, Any],
) -> None:
    """A command line hands bytes that are no UTF-8 on as lone surrogates."""
    wire, caller, callee = pair()
    with pytest.raises(BadSip):
        caller.agent.place(callee.uri, OFFER, wire.now, **wrong)
    assert not caller.agent.calls
    assert not caller.agent.outbox


@pytest.mark.parametrize("reason", ["No\r\nX-Evil: 1", "\udcff", "x" * 3000])
def test_the_words_of_a_refusal_cannot_break_the_message(reason: str) -> None:
    wire, _, callee = pair()
    callee.answers_with = None
    stranger = Stranger(wire)
    stranger.send(request("INVITE", callee, sdp=OFFER), callee)
    wire.run(0.2)
    with pytest.raises(BadSip):
        callee.calls[0].reject(486, wire.now, reason)
    callee.calls[0].reject(486, wire.now, "Not now")
    wire.run(0.2)
    assert stranger.statuses()[-1] == 486


def test_a_refused_header_sends_nothing_and_changes_nothing() -> None:
    wire, caller, callee = pair()
    callee.answers_with = None
    with pytest.raises(BadSip):
        caller.agent.place(callee.uri, OFFER, wire.now, headers={"Via": "x"})
    assert not caller.agent.calls
    call = caller.call(callee)
    wire.run(0.1)
    theirs = callee.calls[0]
    bad = {"To": "x"}
    steps: list[Callable[[], None]] = [
        lambda: theirs.ring(wire.now, headers=bad),
        lambda: theirs.answer(ANSWER, wire.now, headers=bad),
        lambda: theirs.reject(486, wire.now, headers=bad),
        lambda: theirs.hang_up(wire.now, headers=bad),
    ]
    before = (len(wire.carried), theirs.state)
    for step in steps:
        with pytest.raises(BadSip):
            step()
        wire.collect()
        assert (len(wire.carried), theirs.state) == before
    theirs.answer(ANSWER, wire.now)
    wire.run(0.2)
    with pytest.raises(BadSip):
        call.hang_up(wire.now, bad)
    wire.collect()
    assert not wire.requests("BYE")


def test_names_are_found_in_any_case_and_in_their_compact_form() -> None:
    headers = headers_of(("From", "<sip:a@b>"), ("X-List", "1"), ("x-list", "2"))
    assert headers["f"] == headers["FROM"] == "<sip:a@b>"
    assert headers.getlist("x-LIST") == ("1", "2")
    assert headers.get("none") is None
    assert "x-list" in headers
    assert "x-other" not in headers
    assert list(headers) == ["From", "X-List"]
    assert len(headers) == 2
    with pytest.raises(KeyError):
        headers["none"]


def test_values_do_not_show_in_logs() -> None:
    assert "secret" not in repr(headers_of(("Authorization", "secret")))


@pytest.mark.parametrize(
    ("value", "uri"),
    [
        ('"Alice" <sip:alice@example.com>', "sip:alice@example.com"),
        ("<tel:+49301>, <sip:alice@example.com;user=phone>", "sip:alice@example.com;user=phone"),
        ("<tel:+49301>", "tel:+49301"),
        ("<sip:alice@", None),
        ("garbage", None),
        ("", None),
    ],
)
def test_an_address_is_read_where_there_is_one(value: str, uri: str | None) -> None:
    assert headers_of(("P-Asserted-Identity", value)).uri("p-asserted-identity") == uri


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("SIP;cause=200", [Reason("SIP", 200)]),
        (
            'SIP ;cause=486;text="Busy", Q.850;cause=17;text="User, \\"busy\\""',
            [Reason("SIP", 486, "Busy"), Reason("Q.850", 17, 'User, "busy"')],
        ),
        ("Q.850;cause=x", [Reason("Q.850")]),
        ("Q.850;cause=1234", [Reason("Q.850")]),
        ("", []),
        (";cause=1", []),
        ("x" * 40, []),
    ],
)
def test_reasons_are_read(value: str, read: list[Reason]) -> None:
    response = Response(200, "OK")
    response.headers.set("Reason", value)
    assert reasons(response) == read


# A password that is asked for


@pytest.mark.parametrize("status", [401, 407])
def test_who_asks_for_a_password_is_told_with_the_end(status: int) -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)
    challenging(stranger, *[(status, f'Digest realm="pbx", nonce="n{n}"') for n in range(9)])
    caller.call(stranger)
    wire.run(0.5)
    assert (ended(caller).realm, ended(caller).user) == ("pbx", "")
    caller.call(stranger, digest=Digest("us", "secret"))
    wire.run(0.5)
    end = ended(caller)
    assert (end.status, end.realm, end.user) == (status, "pbx", "us")
    assert isinstance(end.error, CallRefused)
    remedy = end.error.remedy or ""
    assert "'pbx'" in remedy
    assert "'us'" in remedy
    assert "secret" not in repr(end) + str(end.error) + remedy


def test_a_server_that_calls_each_password_stale_is_no_endless_loop() -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)
    asks = [(401, f'Digest realm="r", nonce="n{n}", stale=true') for n in range(50)]
    challenging(stranger, *asks)
    caller.call(stranger, digest=Digest("us", "secret"))
    wire.run(5.0)
    assert len(wire.requests("INVITE")) == 4
    assert isinstance(ended(caller).error, CallRefused)
    assert "goes on asking" in (ended(caller).error.remedy or "")  # type: ignore[union-attr]


def test_a_3xx_tells_the_new_address_and_is_not_followed() -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)

    def answer(asked: object) -> list[Response]:
        response = reply(asked, 302, "Moved", to_tag="x")  # type: ignore[arg-type]
        response.add("Contact", "<sip:bob@10.0.0.77>;q=0.5")
        return [response] if asked.method == "INVITE" else []  # type: ignore[attr-defined]

    stranger.respond = answer
    caller.call(stranger)
    wire.run(1.0)
    assert ended(caller).moved_to == "sip:bob@10.0.0.77"
    assert len(wire.requests("INVITE")) == 1


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
