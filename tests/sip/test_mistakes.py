"""Mistakes that other SIP stacks make, each as a test that ours does not."""

from __future__ import annotations

import pytest

from qwen3tts_phone.errors import CallError
from qwen3tts_phone.sip.call.state import CallState, EarlyMedia, Ended, ReinviteReceived
from qwen3tts_phone.sip.message.message import Request, Response, reply
from qwen3tts_phone.sip.transaction.digest import Digest
from tests.sip.wire import (
    ANSWER,
    CHALLENGE,
    OFFER,
    Phone,
    Stranger,
    Wire,
    challenging,
    lose,
    pair,
    request,
)


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
