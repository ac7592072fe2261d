"""Requests from strangers: checked for order, identity and bounds before anything is believed."""

from __future__ import annotations

import pytest

from qwen3tts_phone.errors import BadSip, CallError
from qwen3tts_phone.sip.call.state import CallState, EarlyMedia, Ended, ReinviteReceived
from qwen3tts_phone.sip.core.ua_core import ALLOW
from qwen3tts_phone.sip.message.message import Request, Response, reply
from qwen3tts_phone.sip.transaction.digest import Digest
from qwen3tts_phone.sip.user_agent import CallOrigin
from tests.sip.wire import (
    ANSWER,
    CHALLENGE,
    OFFER,
    Phone,
    Stranger,
    Wire,
    challenging,
    ended,
    lose,
    pair,
    request,
    stranger_up,
)


def test_a_request_out_of_order_is_500() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    tag = stranger_up(wire, stranger, callee, cseq=10)
    for number, cseq in enumerate((10, 9, 1)):
        bye = request("BYE", callee, branch=f"z9hG4bKb{number}", cseq=cseq, to_tag=tag)
        stranger.send(bye, callee)
    wire.run(0.2)
    assert stranger.statuses()[-3:] == [500, 500, 500]
    assert callee.calls[0].state is CallState.UP
    stranger.send(request("BYE", callee, branch="z9hG4bKc", cseq=25, to_tag=tag), callee)
    wire.run(0.2)
    assert stranger.statuses()[-1] == 200


def test_a_bye_for_no_dialog_is_481() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    stranger.send(request("BYE", callee, to_tag="absent"), callee)
    stranger.send(request("BYE", callee, branch="z9hG4bK2", call_id="other"), callee)
    wire.run(0.2)
    assert stranger.statuses() == [481, 481]


def test_a_bye_with_another_from_tag_does_not_end_the_call() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    tag = stranger_up(wire, stranger, callee)
    bye = request("BYE", callee, branch="z9hG4bKx", cseq=2, to_tag=tag, from_tag="guess")
    stranger.send(bye, callee)
    wire.run(0.2)
    assert stranger.statuses()[-1] == 481
    assert callee.calls[0].state is CallState.UP


def test_a_merged_request_is_482() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    stranger.send(request("INVITE", callee, branch="z9hG4bKone", sdp=OFFER), callee)
    stranger.send(request("INVITE", callee, branch="z9hG4bKtwo", sdp=OFFER), callee)
    wire.run(0.2)
    assert stranger.statuses().count(482) == 1
    assert len(callee.calls) == 1


@pytest.mark.parametrize(
    ("method", "status"), [("SUBSCRIBE", 405), ("MESSAGE", 405), ("BREW", 501), ("invite", 501)]
)
def test_other_methods_are_405_or_501_with_allow(method: str, status: int) -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    stranger.send(request(method, callee), callee)
    wire.run(0.2)
    assert stranger.statuses() == [status]
    assert stranger.got[0].get("Allow") == ALLOW


@pytest.mark.parametrize(
    ("method", "status"),
    [("REFER", 403), ("INFO", 481), ("UPDATE", 481), ("PRACK", 481), ("NOTIFY", 481)],
)
def test_what_needs_a_call_is_refused_without_one(method: str, status: int) -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    extra = (("Refer-To", "<sip:911@elsewhere.example>"),)
    stranger.send(request(method, callee, extra=extra), callee)
    wire.run(0.2)
    assert stranger.statuses() == [status]
    assert wire.story(Request) == [method]


def test_what_is_required_and_unknown_is_420() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    extra = (("Require", "100rel, timer, precondition"),)
    stranger.send(request("INVITE", callee, sdp=OFFER, extra=extra), callee)
    wire.run(0.2)
    assert stranger.statuses() == [420]
    assert stranger.got[0].get("Unsupported") == "precondition"
    assert not callee.calls


@pytest.mark.parametrize(
    ("uri", "forwards", "status"),
    [
        ("sip:someone@elsewhere.example", "0", 483),
        ("sip:phone@10.0.0.2:5060", "0", 200),
        ("sip:phone@10.0.0.2:5060", "soon", 400),
        ("http://10.0.0.2/", "70", 416),
        ("sip:phone@10.0.0.2:99999", "70", 400),
    ],
)
def test_the_request_line_and_its_hops_are_checked(uri: str, forwards: str, status: int) -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    options = request("OPTIONS", callee)
    options.uri = uri
    options.replace("Max-Forwards", forwards)
    stranger.send(options, callee)
    wire.run(0.2)
    assert stranger.statuses() == [status]


def test_a_body_that_is_not_sdp_is_415() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    invite = request("INVITE", callee, sdp="x")
    invite.replace("Content-Type", "multipart/mixed")
    stranger.send(invite, callee)
    wire.run(0.2)
    assert stranger.statuses() == [415]
    assert stranger.got[0].get("Accept") == "application/sdp"


@pytest.mark.parametrize(
    "contact", ["", "<sips:x@10.0.0.9>", "<sip:x@10.0.0.9;transport=ws>", "*", "<tel:123>"]
)
def test_an_invite_that_could_never_be_answered_back_is_400(contact: str) -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    invite = request("INVITE", callee, sdp=OFFER)
    invite.headers.remove("Contact")
    if contact:
        invite.add("Contact", contact)
    stranger.send(invite, callee)
    wire.run(0.2)
    assert stranger.statuses() == [400]
    assert not callee.agent.calls


def test_one_call_more_than_the_bound_is_486() -> None:
    wire = Wire()
    caller, callee = Phone(wire, "10.0.0.1"), Phone(wire, "10.0.0.2", max_calls=2)
    calls = [caller.call(callee) for _ in range(3)]
    wire.run(1.0)
    assert sorted(call.state.name for call in calls) == ["ENDED", "UP", "UP"]
    assert ended(caller).status == 486
    calls[0].bye(wire.now) if calls[0].state is CallState.UP else calls[1].bye(wire.now)
    wire.run(1.0)
    assert caller.call(callee) is not None
    wire.run(1.0)
    assert len(callee.agent.calls) == 2


def test_an_invite_without_the_branch_cookie_is_a_call_like_any_other() -> None:
    """RFC 2543: transactions are matched by the headers."""
    wire, _, callee = pair()
    stranger = Stranger(wire)
    via = "SIP/2.0/UDP 10.0.0.9:5060"
    invite = request("INVITE", callee, via=via, sdp=OFFER)
    stranger.send(invite, callee)
    stranger.send(invite, callee)
    wire.run(0.2)
    assert len(callee.calls) == 1
    callee.calls[0].tick(wire.now)
    okay = next(m for m in stranger.got if isinstance(m, Response) and m.status == 200)
    stranger.send(request("ACK", callee, via=via, to_tag=okay.to.tag or ""), callee)
    wire.run(0.2)
    assert callee.calls[0].state is CallState.UP


def test_a_refusal_to_an_invite_without_the_cookie_is_acknowledged() -> None:
    wire, _, callee = pair()
    callee.answers_with = None
    stranger = Stranger(wire)
    via = "SIP/2.0/UDP 10.0.0.9:5060"
    stranger.send(request("INVITE", callee, via=via, sdp=OFFER), callee)
    wire.run(0.2)
    callee.calls[0].reject(486, wire.now)
    wire.run(0.1)
    refusal = stranger.got[-1]
    stranger.send(request("ACK", callee, via=via, to_tag=refusal.to.tag or ""), callee)
    wire.run(10.0)
    assert stranger.statuses().count(486) == 1


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("", "not a SIP address"),
        ("bob", "not a SIP address"),
        ("tel:+1555", "telephone number"),
        ("sips:bob@10.0.0.2", "tls"),
        ("sips:bob@10.0.0.2;transport=udp", "never goes over UDP"),
        ("SIPS:bob@10.0.0.2;Transport=UDP", "never goes over UDP"),
        ("sip:bob@10.0.0.2;transport=sctp", "not enabled"),
        ("sip:bob@10.0.0.2:70000", "out of range"),
        ("sip:bob@10.0.0.2\r\nEvil: x", "not a SIP address"),
        ("sip:" + "a" * 5000 + "@x", "too long"),
    ],
)
def test_an_address_that_cannot_be_called_says_why(target: str, said: str) -> None:
    _wire, caller, _ = pair()
    with pytest.raises(BadSip, match=said):
        caller.call(target)
    assert not caller.agent.calls


@pytest.mark.parametrize("name", ["X Evil", "X:Evil", "", "X\r\nEvil"])
def test_a_header_of_the_program_cannot_break_the_message(name: str) -> None:
    wire, caller, callee = pair()
    with pytest.raises(BadSip):
        caller.agent.place(callee.uri, OFFER, wire.now, headers={name: "x"})
    with pytest.raises(BadSip):
        caller.agent.place(callee.uri, OFFER, wire.now, headers={"X-Fine": "a\r\nEvil: b"})
    assert not caller.agent.calls


def test_a_200_without_a_usable_contact_ends_the_call_with_the_reason() -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)

    def answer(request: Request) -> list[Response]:
        response = reply(request, 200, to_tag="x")
        response.add("Contact", "<sips:x@10.0.0.9>")
        return [response] if request.method == "INVITE" else []

    stranger.respond = answer
    caller.call(stranger)
    wire.run(1.0)
    assert isinstance(ended(caller).error, BadSip)
    assert not caller.agent.calls


@pytest.mark.parametrize(("method", "status"), [("OPTIONS", 200), ("INFO", 200), ("MESSAGE", 405)])
def test_other_requests_inside_the_dialog_are_answered(method: str, status: int) -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    tag = stranger_up(wire, stranger, callee)
    stranger.send(request(method, callee, branch="z9hG4bKo", cseq=2, to_tag=tag), callee)
    wire.run(0.2)
    assert stranger.statuses()[-1] == status
    assert callee.calls[0].state is CallState.UP


def test_a_bye_while_it_rings_ends_the_invite_with_487() -> None:
    """RFC 3261 section 15.1.2: a caller may hang up an early dialog so."""
    wire, _, callee = pair()
    callee.answers_with = None
    stranger = Stranger(wire)
    stranger.send(request("INVITE", callee, sdp=OFFER), callee)
    wire.run(0.1)
    callee.calls[0].ring(wire.now)
    wire.run(0.1)
    tag = stranger.got[-1].to.tag or ""
    stranger.send(request("BYE", callee, branch="z9hG4bKb", cseq=2, to_tag=tag), callee)
    wire.run(0.1)
    assert stranger.statuses()[-2:] == [200, 487]
    assert ended(callee).by == "remote"


def test_a_request_with_a_wrong_length_is_400_and_no_call() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    data = bytes(request("INVITE", callee, sdp=OFFER))
    callee.agent.receive(data[:-10], stranger.hop(), wire.now)
    wire.run(0.2)
    assert stranger.statuses() == [400]
    assert not callee.calls
    assert callee.agent.rejected == 1


def test_an_answer_with_two_vias_is_somebody_elses() -> None:
    """RFC 3261 section 8.1.3.3."""
    wire, caller, _ = pair()
    stranger = Stranger(wire)

    def answer(request: Request) -> list[Response]:
        response = reply(request, 486, to_tag="x")
        response.headers.add("Via", "SIP/2.0/UDP 10.0.0.66;branch=z9hG4bKother")
        return [response]

    stranger.respond = answer
    call = caller.call(stranger)
    wire.run(1.0)
    assert call.state is CallState.CALLING


def test_an_answer_to_nothing_of_ours_is_dropped() -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)
    stranger.send(reply(request("INVITE", caller), 200, to_tag="x"), caller)
    wire.run(1.0)
    assert wire.story() == ["200 INVITE"]


# sips: over UDP (RFC 3261 section 26.2.2)


def test_a_sips_request_that_comes_over_udp_is_refused_with_416() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    for number, method in enumerate(("INVITE", "OPTIONS")):
        asked = request(method, callee, sdp=OFFER, branch=f"z9hG4bK{number}", call_id=str(number))
        asked.uri = callee.uri.replace("sip:", "sips:")
        stranger.send(asked, callee)
    wire.run(0.2)
    assert [status for status in stranger.statuses() if status >= 200] == [416, 416]
    assert not callee.calls


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Contact", "<sips:stranger@10.0.0.9;transport=udp>"),
        ("Record-Route", "<sips:10.0.0.9;lr;transport=udp>"),
        ("Record-Route", "<sip:10.0.0.8;lr>, <SIPS:10.0.0.9;transport=UDP;lr>"),
        ("Route", "<sips:10.0.0.9;lr;transport=udp>"),
    ],
)
def test_a_sips_address_with_udp_in_a_request_is_refused_with_400(name: str, value: str) -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    asked = request("INVITE", callee, sdp=OFFER)
    asked.replace(name, value)
    stranger.send(asked, callee)
    wire.run(0.2)
    assert [status for status in stranger.statuses() if status >= 200] == [400]
    assert not callee.calls


def test_a_sips_address_is_not_called_through_a_proxy_over_udp() -> None:
    wire, caller, _ = pair()
    with pytest.raises(BadSip, match="never goes over UDP"):
        caller.agent.place(
            "sips:bob@10.0.0.2", OFFER, wire.now, origin=CallOrigin(proxy="sip:10.0.0.5")
        )
    assert not caller.agent.calls


def test_an_answer_whose_contact_is_sips_over_udp_ends_the_call_with_the_reason() -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)

    def answer(request: Request) -> list[Response]:
        response = reply(request, 200, to_tag="x")
        response.add("Record-Route", "<sip:10.0.0.9;lr>")
        response.add("Contact", "<sips:x@10.0.0.9;transport=udp>")
        return [response] if request.method == "INVITE" else []

    stranger.respond = answer
    caller.call(stranger)
    wire.run(1.0)
    error = ended(caller).error
    assert isinstance(error, BadSip)
    assert "never goes over UDP" in error.message


@pytest.mark.parametrize("lost", [1, 2, 5])
def test_a_lost_invite_is_sent_again(lost: int) -> None:
    wire, caller, callee = pair()
    lose(wire, *["INVITE"] * lost)
    call = caller.call(callee)
    wire.run(40.0)
    assert call.state is CallState.UP
    assert len(wire.sent("INVITE")) == lost + 1


def test_401_and_486_are_acknowledged() -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)
    challenging(stranger, (401, CHALLENGE))
    answer = stranger.respond
    stranger.respond = lambda r: (
        [reply(r, 486, to_tag="x")] if r.get("Authorization") and r.method != "ACK" else answer(r)
    )
    caller.call(stranger, digest=Digest("alice", "secret"))
    wire.run(1.0)
    branches = [r.branch for r in wire.requests("INVITE")]
    assert [r.branch for r in wire.requests("ACK")] == branches


def test_a_repeated_invite_makes_no_second_call_while_it_rings() -> None:
    wire, _, callee = pair()
    callee.answers_with = None
    stranger = Stranger(wire)
    invite = request("INVITE", callee, sdp=OFFER)
    for _ in range(3):
        stranger.send(invite, callee)
        wire.run(0.1)
    assert len(callee.calls) == 1
    callee.calls[0].ring(wire.now)
    stranger.send(invite, callee)
    wire.run(0.1)
    assert stranger.statuses()[-2:] == [180, 180]


def test_a_repeated_invite_after_the_200_is_not_481() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    invite = request("INVITE", callee, sdp=OFFER)
    stranger.send(invite, callee)
    wire.run(0.2)
    to_tag = stranger.got[-1].to.tag or ""
    stranger.send(request("ACK", callee, branch="z9hG4bKa", to_tag=to_tag), callee)
    wire.run(0.2)
    stranger.send(invite, callee)
    wire.run(0.2)
    assert 481 not in stranger.statuses()
    assert len(callee.calls) == 1
    assert callee.calls[0].state is CallState.UP


def test_the_contact_of_the_2xx_is_where_later_requests_go() -> None:
    wire, caller, _ = pair()
    stranger, desk = Stranger(wire), Stranger(wire, "10.0.0.10", 5080)

    def answer(request: Request) -> list[Response]:
        response = reply(request, 200, to_tag="x")
        response.add("Contact", "<sip:desk@10.0.0.10:5080>")
        return [response]

    stranger.respond = answer
    call = caller.call(stranger)
    wire.run(0.2)
    call.bye(wire.now)
    wire.run(0.2)
    assert [type(m).__name__ and getattr(m, "method", "") for m in desk.got] == ["ACK", "BYE"]


def test_a_retry_with_credentials_keeps_the_programs_headers() -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)
    challenging(stranger, (401, CHALLENGE))
    caller.agent.place(
        stranger.uri,
        OFFER,
        wire.now,
        digest=Digest("alice", "secret"),
        headers={"X-Account": "17", "P-Asserted-Identity": "<sip:alice@example.org>"},
    )
    wire.run(1.0)
    for invite in wire.requests("INVITE"):
        assert invite.get("X-Account") == "17"
        assert invite.get("P-Asserted-Identity") == "<sip:alice@example.org>"
        assert invite.sdp == OFFER


def test_the_sdp_of_a_183_is_told() -> None:
    wire, caller, callee = pair()
    callee.answers_with = None
    caller.call(callee)
    wire.run(0.2)
    callee.calls[0].ring(wire.now, ANSWER)
    wire.run(0.2)
    assert EarlyMedia(ANSWER) in caller.events


def change(wire: Wire, by: Phone, to: Phone, outbound: bool) -> list[str | CallError]:
    """Change the session of the one call, from either side; the other accepts."""
    ours = next(iter(by.agent.calls))
    theirs = next(iter(to.agent.calls))

    def notify(event: object) -> None:
        to.events.append(event)  # type: ignore[arg-type]
        if isinstance(event, ReinviteReceived):
            event.respond(ANSWER)

    theirs.notify = notify
    got: list[str | CallError] = []
    ours.modification.start(OFFER, got.append, wire.now)
    wire.run(1.0)
    assert ours.direction == ("out" if outbound else "in")
    return got


@pytest.mark.parametrize("outbound", [True, False])
def test_a_change_of_ours_is_acknowledged_on_calls_of_both_directions(outbound: bool) -> None:
    wire, caller, callee = pair()
    caller.call(callee)
    wire.run(1.0)
    by, to = (caller, callee) if outbound else (callee, caller)
    assert change(wire, by, to, outbound) == [ANSWER]
    assert wire.story()[-2:] == ["200 INVITE", "ACK"]
    assert wire.sent("ACK")[-1].source.host == by.host


@pytest.mark.parametrize("outbound", [True, False])
def test_a_491_to_a_change_does_not_end_the_dialog(outbound: bool) -> None:
    wire, caller, callee = pair()
    caller.call(callee)
    wire.run(1.0)
    by, to = (caller, callee) if outbound else (callee, caller)
    theirs = next(iter(to.agent.calls))
    wire.drop = lambda carried: carried.what == "INVITE" and carried.source.host == to.host
    theirs.modification.start(OFFER, lambda result: None, wire.now)
    ours = next(iter(by.agent.calls))
    ours.modification.start(OFFER, lambda result: None, wire.now)
    wire.run(0.2)
    assert "491 INVITE" in wire.story()
    assert ours.state is CallState.UP
    assert not any(isinstance(event, Ended) for event in by.events)


def test_a_request_over_tcp_is_answered_on_its_connection_whatever_via_says() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire, "10.0.0.9", 41000)
    via = "SIP/2.0/TCP 10.0.0.9:5060;branch=z9hG4bKt"
    stranger.send(request("OPTIONS", callee, via=via), callee, "tcp")
    wire.collect()
    wire.run(0.05)
    (answer,) = wire.sent("200 OPTIONS")
    assert (answer.to.flow, answer.to.by_flow) == (1, True)


def test_a_cancelled_call_still_acknowledges_its_487() -> None:
    wire, caller, callee = pair()
    callee.answers_with = None
    call = caller.call(callee)
    wire.run(0.2)
    call.cancel(wire.now)
    wire.run(40.0)
    assert wire.story()[-2:] == ["487 INVITE", "ACK"]


def test_a_challenge_inside_the_dialog_is_answered() -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)
    challenging(stranger)
    call = caller.call(stranger, digest=Digest("alice", "secret"))
    wire.run(0.5)
    challenging(stranger, (401, CHALLENGE))
    got: list[str | CallError] = []
    call.modification.start(OFFER, got.append, wire.now)
    wire.run(0.5)
    assert got == [ANSWER]
    challenging(stranger, (407, CHALLENGE.replace("test", "proxy")))
    call.bye(wire.now)
    wire.run(0.5)
    byes = wire.requests("BYE")
    assert [bye.get("Proxy-Authorization") is not None for bye in byes] == [False, True]
    assert byes[1].cseq == byes[0].cseq + 1
    assert not caller.agent.calls


def test_the_ack_carries_the_credentials_of_its_invite() -> None:
    """RFC 3261 section 22.1: a proxy cannot challenge an ACK."""
    wire, caller, _ = pair()
    stranger = Stranger(wire)
    challenging(stranger, (407, CHALLENGE))
    caller.call(stranger, digest=Digest("alice", "secret"))
    wire.run(1.0)
    invite, ack = wire.requests("INVITE")[-1], wire.requests("ACK")[-1]
    assert ack.cseq == invite.cseq
    assert ack.get("Proxy-Authorization") == invite.get("Proxy-Authorization")
