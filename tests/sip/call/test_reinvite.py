"""Changing a session that is up: re-INVITE from either side."""

from __future__ import annotations

import pytest

from qwen3tts_phone.errors import (
    CalleeUnreachable,
    CallError,
    WrongState,
)
from qwen3tts_phone.sdp.session import SdpSession, parse
from qwen3tts_phone.sip.call.state import CallState, ReinviteConfirmed, ReinviteReceived
from qwen3tts_phone.sip.message.message import Request, Response, reply
from qwen3tts_phone.sip.transaction.digest import Digest
from tests.sip.wire import (
    ANSWER,
    CHALLENGE,
    OFFER,
    Stranger,
    accept_changes,
    ended,
    lose,
    pair,
    request,
    stranger_up,
)


def test_the_caller_changes_the_session() -> None:
    wire, caller, callee = pair()
    call = caller.call(callee)
    wire.run(1.0)
    accept_changes(callee, "v=0 changed")
    got: list[str | CallError] = []
    call.modification.start("v=0 hold", got.append, wire.now)
    wire.run(1.0)
    assert got == ["v=0 changed"]
    assert isinstance(callee.events[-2], ReinviteReceived)
    assert callee.events[-2].offer == "v=0 hold"
    assert wire.story()[-4:] == ["INVITE", "100 INVITE", "200 INVITE", "ACK"]


def test_the_callee_changes_the_session() -> None:
    wire, caller, callee = pair()
    call = caller.call(callee)
    wire.run(1.0)
    got: list[str | CallError] = []

    def notify(event: object) -> None:
        if isinstance(event, ReinviteReceived):
            event.respond("v=0 mine")

    call.notify = notify
    callee.calls[0].modification.start("v=0 theirs", got.append, wire.now)
    wire.run(1.0)
    assert got == ["v=0 mine"]
    assert wire.story()[-1] == "ACK"
    wire.run(40.0)
    assert call.state is CallState.UP


def test_two_changes_at_once_are_both_made_after_glare() -> None:
    wire, caller, callee = pair()
    call = caller.call(callee)
    wire.run(1.0)
    accept_changes(callee, "v=0 by callee")
    got: list[str | CallError] = []

    def notify(event: object) -> None:
        if isinstance(event, ReinviteReceived):
            event.respond("v=0 by caller")

    call.notify = notify
    start = wire.now
    call.modification.start("v=0 one", got.append, wire.now)
    callee.calls[0].modification.start("v=0 two", got.append, wire.now)
    wire.run(10.0)
    assert wire.story().count("491 INVITE") == 2
    assert sorted(str(result) for result in got) == ["v=0 by callee", "v=0 by caller"]
    assert call.state is CallState.UP
    again = [c for c in wire.sent("INVITE") if c.at > start + 0.1]
    by_caller = [c.at - start for c in again if c.source.host == caller.host]
    by_callee = [c.at - start for c in again if c.source.host == callee.host]
    assert 2.1 <= by_caller[0] <= 4.1
    assert 0.0 <= by_callee[0] <= 2.1


def test_a_change_asked_for_before_the_ack_waits_for_it() -> None:
    wire, caller, callee = pair()
    call = caller.call(callee)
    lose(wire, "ACK")
    wire.until(lambda: bool(callee.calls) and callee.calls[0].state is CallState.ANSWERED)
    got: list[str | CallError] = []
    callee.calls[0].modification.start("v=0 hold", got.append, wire.now)

    def notify(event: object) -> None:
        if isinstance(event, ReinviteReceived):
            event.respond("v=0 fine")

    call.notify = notify
    wire.run(3.0)
    assert got == ["v=0 fine"]


def test_a_second_change_of_ours_at_once_is_wrong_state() -> None:
    wire, caller, callee = pair()
    call = caller.call(callee)
    wire.run(1.0)
    call.modification.start("v=0", lambda result: None, wire.now)
    with pytest.raises(WrongState, match="already under way"):
        call.modification.start("v=0", lambda result: None, wire.now)


def test_hanging_up_during_a_change_of_theirs_answers_it_with_487() -> None:
    wire, caller, callee = pair()
    call = caller.call(callee)
    wire.run(1.0)
    got: list[str | CallError] = []
    call.modification.start("v=0 hold", got.append, wire.now)
    wire.run(0.1)
    callee.calls[0].bye(wire.now)
    wire.run(2.0)
    assert "487 INVITE" in wire.story()
    assert len(got) == 1
    assert isinstance(got[0], CallError)


def test_a_change_of_theirs_can_be_cancelled() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    tag = stranger_up(wire, stranger, callee)
    again = request("INVITE", callee, branch="z9hG4bKre", cseq=2, to_tag=tag, sdp=OFFER)
    stranger.send(again, callee)
    wire.run(0.2)
    cancel = request("CANCEL", callee, branch="z9hG4bKre", cseq=2, to_tag=tag)
    stranger.send(cancel, callee)
    wire.run(0.2)
    assert stranger.statuses()[-2:] == [200, 487]
    assert callee.calls[0].state is CallState.UP
    respond = callee.events[-1]
    assert isinstance(respond, ReinviteReceived)
    respond.respond(ANSWER)
    assert stranger.statuses()[-2:] == [200, 487]


def test_a_change_that_leaves_the_offer_to_us_is_confirmed_with_their_answer() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    tag = stranger_up(wire, stranger, callee)
    stranger.send(request("INVITE", callee, branch="z9hG4bKr", cseq=2, to_tag=tag), callee)
    wire.run(0.2)
    event = callee.events[-1]
    assert isinstance(event, ReinviteReceived)
    assert event.offer is None
    event.respond(ANSWER)
    wire.run(0.2)
    assert stranger.got[-1].sdp == ANSWER
    ack = request("ACK", callee, branch="z9hG4bKs", cseq=2, to_tag=tag, sdp=OFFER)
    stranger.send(ack, callee)
    wire.run(0.2)
    assert callee.events[-1] == ReinviteConfirmed(OFFER)


def test_a_change_of_theirs_that_is_never_acknowledged_ends_the_call() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    tag = stranger_up(wire, stranger, callee)
    again = request("INVITE", callee, branch="z9hG4bKr", cseq=2, to_tag=tag, sdp=OFFER)
    stranger.send(again, callee)
    wire.run(0.2)
    event = callee.events[-1]
    assert isinstance(event, ReinviteReceived)
    event.respond(ANSWER)
    wire.run(33.0)
    assert stranger.statuses().count(200) > 5
    assert ended(callee).by == "error"
    assert wire.requests("BYE")


def test_a_change_that_is_never_more_than_100_fails_after_a_minute() -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)

    def answer(request: Request) -> list[Response]:
        if request.method != "INVITE":
            return []
        response = reply(request, 200 if request.to.tag is None else 100, to_tag="x")
        response.add("Contact", "<sip:x@10.0.0.9:5060>")
        return [response]

    stranger.respond = answer
    call = caller.call(stranger)
    wire.run(1.0)
    got: list[str | CallError] = []
    call.modification.start(OFFER, got.append, wire.now)
    wire.run(100.0)
    assert isinstance(got[0], CalleeUnreachable)
    assert ended(caller).by == "error"
    wire.run(60.0)
    assert len(caller.agent.layer) == 0


def test_a_change_of_ours_is_not_sent_anew_after_the_call() -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)
    changes: list[Request] = []

    def answer(request: Request) -> list[Response]:
        if request.method == "INVITE" and request.to.tag is not None:
            changes.append(request)
            return []
        response = reply(request, 200, to_tag="x")
        response.add("Contact", "<sip:x@10.0.0.9:5060>")
        return [] if request.method == "ACK" else [response]

    stranger.respond = answer
    call = caller.call(stranger, digest=Digest("alice", "secret"))
    wire.run(1.0)
    call.modification.start(OFFER, lambda result: None, wire.now)
    wire.run(0.1)
    call.hang_up(wire.now)
    wire.run(0.1)
    challenge = reply(changes[0], 401)
    challenge.add("WWW-Authenticate", CHALLENGE)
    stranger.send(challenge, caller)
    wire.run(5.0)
    assert len(changes) == 1


def test_a_repeated_answer_to_the_last_change_is_not_the_answer_to_the_next() -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)
    changes: list[Request] = []

    def answer(request: Request) -> list[Response]:
        if request.method == "INVITE" and request.to.tag is not None:
            changes.append(request)
        response = reply(request, 200, to_tag="x")
        response.add("Contact", "<sip:x@10.0.0.9:5060>")
        response.set_body(ANSWER)
        late = request.method == "ACK" or len(changes) == 2
        return [] if late else [response]

    stranger.respond = answer
    call = caller.call(stranger)
    wire.run(1.0)
    got: list[str | CallError] = []
    call.modification.start(OFFER, got.append, wire.now)
    wire.run(0.1)
    call.modification.start(ANSWER, got.append, wire.now)
    wire.run(0.1)
    for change, sdp in ((changes[0], ANSWER), (changes[1], OFFER)):
        response = reply(change, 200)
        response.add("Contact", "<sip:x@10.0.0.9:5060>")
        response.set_body(sdp)
        stranger.send(response, caller)
        wire.run(0.1)
    assert got == [ANSWER, OFFER]
    acks = [ack.cseq for ack in wire.requests("ACK")]
    assert acks == [1, changes[0].cseq, changes[0].cseq, changes[1].cseq]


def test_an_offer_that_waited_for_theirs_is_written_when_it_goes_out() -> None:
    """Its version must be above that of our answer (RFC 3264 section 8), or it is ignored."""
    wire, caller, callee = pair()
    call = caller.call(callee)
    wire.run(1.0)
    ours, theirs = SdpSession("10.0.0.1", 4000), SdpSession("10.0.0.2", 5000)
    ours.offer()
    accept_changes(callee)
    sent: list[str] = []

    def offer() -> str:
        sent.append(ours.offer("sendonly"))
        return sent[-1]

    answers: list[str] = []

    def notify(event: object) -> None:
        if isinstance(event, ReinviteReceived):
            answers.append(ours.answer(event.offer or "")[0])
            event.respond(answers[-1])

    call.notify = notify
    got: list[str | CallError] = []
    call.modification.start(offer, got.append, wire.now)
    callee.calls[0].modification.start(theirs.offer(), lambda result: None, wire.now)
    wire.run(20.0)
    assert got == [ANSWER]
    assert len(answers) == 1
    assert parse(sent[0]).version < parse(answers[0]).version <= parse(sent[-1]).version
    changes = [invite.sdp for invite in wire.requests("INVITE")]
    assert changes[-1] == sent[-1]
