"""UPDATE (RFC 3311): the session changes before and after the answer, and with glare."""

from __future__ import annotations

import pytest

from qwen3tts_phone.errors import BadSdp, CallError, CallRefused, WrongState
from qwen3tts_phone.sip.call.state import CallState, ReinviteConfirmed, ReinviteReceived
from qwen3tts_phone.sip.message.message import Request, Response, reply
from tests.sip.wire import (
    ANSWER,
    EARLY,
    OFFER,
    Phone,
    Stranger,
    Wire,
    accept_changes,
    invited,
    pair,
    prack,
    provisional,
    reliably,
    request,
    ringing,
    stranger_up,
    up,
)

Got = list[str | CallError]


def update_from(
    stranger: Stranger, callee: Phone, tag: str, *, cseq: int = 2, sdp: str | None = OFFER
) -> None:
    message = request("UPDATE", callee, branch=f"z9hG4bKu{cseq}", cseq=cseq, to_tag=tag, sdp=sdp)
    stranger.send(message, callee)
    stranger.wire.run(0.1)


def asked_of(phone: Phone) -> ReinviteReceived:
    event = phone.events[-1]
    assert isinstance(event, ReinviteReceived)
    return event


def started(phone: Phone, sdp: str = "v=0 changed") -> Got:
    """An UPDATE that a phone's only call sends."""
    got: Got = []
    (call,) = phone.agent.calls
    call.modification.start(sdp, got.append, phone.wire.now, "UPDATE")
    return got


def test_an_update_changes_a_call_that_is_up_without_an_ack() -> None:
    wire, caller, callee = pair()
    up(wire, caller, callee)
    accept_changes(callee)
    before = len(wire.carried)
    got = started(caller)
    wire.run(1.0)
    assert got == [ANSWER]
    assert wire.story()[before:] == ["UPDATE", "200 UPDATE"]
    assert callee.events[-2:] == [
        ReinviteReceived("v=0 changed", callee.events[-2].respond, "UPDATE"),  # type: ignore[union-attr]
        ReinviteConfirmed(None),
    ]
    (sent,) = wire.requests("UPDATE")
    assert sent.get("Contact") == "<sip:agent@10.0.0.1:5060>"
    assert sent.get("Session-Expires") is not None
    (call,) = caller.agent.calls
    assert (call.local_sdp, callee.calls[0].local_sdp) == ("v=0 changed", ANSWER)


def test_a_2xx_to_an_update_without_media_is_an_error() -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)

    def answer(request: Request) -> list[Response]:
        response = reply(request, 200, to_tag="x")
        response.add("Contact", "<sip:bob@10.0.0.9:5060>")
        response.set_body(ANSWER if request.method == "INVITE" else None)
        return [] if request.method == "ACK" else [response]

    stranger.respond = answer
    caller.call(stranger)
    wire.run(0.5)
    got = started(caller)
    wire.run(0.5)
    assert isinstance(got[0], BadSdp)


def test_the_body_of_an_update_must_be_sdp() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    tag = stranger_up(wire, stranger, callee)
    message = request("UPDATE", callee, branch="z9hG4bKu", cseq=2, to_tag=tag, sdp="{}")
    message.replace("Content-Type", "application/json")
    stranger.send(message, callee)
    wire.run(0.1)
    assert stranger.statuses()[-1] == 415


# Glare


def test_two_updates_that_cross_are_both_made_in_the_end() -> None:
    wire, caller, callee = pair()
    up(wire, caller, callee)
    accept_changes(callee)
    accept_changes(caller, "v=0 theirs")
    ours, theirs = started(caller), started(callee)
    wire.run(10.0)
    assert wire.sent("491 UPDATE")
    assert ours == [ANSWER]
    assert theirs == ["v=0 theirs"]


def test_an_update_that_crosses_a_reinvite_of_ours_is_491() -> None:
    wire, caller, callee = pair()
    up(wire, caller, callee)
    accept_changes(callee)
    accept_changes(caller, "v=0 theirs")
    ours: Got = []
    (call,) = caller.agent.calls
    call.modification.start("v=0 ours", ours.append, wire.now)
    theirs = started(callee)
    wire.run(10.0)
    assert wire.sent("491 UPDATE")
    assert ours == [ANSWER]
    assert theirs == ["v=0 theirs"]


@pytest.mark.parametrize(("after", "tries"), [("0", 6), ("3", 6), ("11", 1), ("x", 1)])
def test_500_with_a_time_to_wait_is_tried_again_a_few_times(after: str, tries: int) -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)

    def answer(request: Request) -> list[Response]:
        status = 500 if request.method == "UPDATE" else 200
        response = reply(request, status, to_tag="x")
        response.add("Contact", "<sip:bob@10.0.0.9:5060>")
        if status == 500:
            response.add("Retry-After", after)
        response.set_body(ANSWER if status == 200 else None)
        return [] if request.method == "ACK" else [response]

    stranger.respond = answer
    caller.call(stranger)
    wire.run(0.5)
    got = started(caller)
    wire.run(60.0)
    assert len(wire.requests("UPDATE")) == tries
    assert isinstance(got[0], CallRefused)
    assert caller.agent.calls


def test_an_update_without_an_offer_passes_while_a_change_is_under_way() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    tag = stranger_up(wire, stranger, callee)
    update_from(stranger, callee, tag)
    update_from(stranger, callee, tag, cseq=3, sdp=None)
    assert stranger.statuses()[-1] == 200
    asked_of(callee).respond(ANSWER)
    wire.run(0.1)
    assert stranger.statuses()[-1] == 200


def test_a_pending_update_is_487_when_the_call_ends() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    tag = stranger_up(wire, stranger, callee)
    update_from(stranger, callee, tag)
    callee.calls[0].hang_up(wire.now)
    wire.run(0.1)
    assert 487 in stranger.statuses()
    update_from(stranger, callee, tag, cseq=3)
    assert stranger.statuses()[-1] == 481


# Before the answer


def test_before_the_answer_theirs_is_put_to_the_owner_once_their_offer_is_answered() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    invited(stranger, callee)
    ringing(callee, EARLY)
    wire.run(0.1)
    rung = provisional(stranger)
    prack(stranger, callee, rung)
    update_from(stranger, callee, rung.to.tag or "", cseq=3)
    asked = asked_of(callee)
    assert (asked.method, asked.early) == ("UPDATE", True)
    asked.respond(ANSWER)
    wire.run(0.1)
    assert stranger.statuses()[-1] == 200
    assert callee.calls[0].local_sdp == ANSWER
    callee.calls[0].answer(ANSWER, wire.now)
    wire.run(0.1)
    assert stranger.got[-1].body == b""


def early_call(answered: bool) -> tuple[Wire, Phone, Stranger]:
    """A call of ours that rings at a stranger, whose 183 is reliable or not."""
    wire, caller, _ = pair()
    stranger = Stranger(wire)

    def answer(request: Request) -> list[Response]:
        if request.method == "INVITE":
            rung = reliably(request, 7, 183, ANSWER)
            if not answered:
                rung.headers.remove("Require")
            return [rung]
        response = reply(request, 200, to_tag="x")
        response.set_body(EARLY if request.method == "UPDATE" else None)
        return [] if request.method == "ACK" else [response]

    stranger.respond = answer
    caller.call(stranger)
    wire.run(0.2)
    return wire, caller, stranger


def test_before_the_answer_ours_goes_into_the_early_dialog() -> None:
    wire, caller, _ = early_call(answered=True)
    got = started(caller)
    wire.run(0.2)
    assert got == [EARLY]
    (sent,) = wire.requests("UPDATE")
    assert (sent.to.tag, sent.uri, sent.cseq) == ("x", "sip:bob@10.0.0.9:5060", 3)


def test_before_a_reliable_answer_there_is_no_update_of_ours() -> None:
    _wire, caller, _ = early_call(answered=False)
    with pytest.raises(WrongState):
        started(caller)


def test_a_reinvite_of_ours_waits_for_the_answer_of_the_call() -> None:
    wire, caller, _ = early_call(answered=True)
    (call,) = caller.agent.calls
    with pytest.raises(WrongState):
        call.modification.start("v=0", lambda result: None, wire.now)


def test_an_update_of_theirs_in_an_early_dialog_is_put_to_the_owner() -> None:
    wire, caller, stranger = early_call(answered=True)
    (call,) = caller.agent.calls
    theirs = Request("UPDATE", "sip:agent@10.0.0.1:5060")
    theirs.add("Via", "SIP/2.0/UDP 10.0.0.9:5060;branch=z9hG4bKu;rport")
    theirs.add("From", "<sip:bob@10.0.0.9>;tag=x")
    invite = wire.requests("INVITE")[0]
    theirs.add("To", invite.require("From"))
    theirs.add("Call-ID", invite.call_id)
    theirs.add("CSeq", "1 UPDATE")
    theirs.add("Contact", "<sip:moved@10.0.0.9:5060>")
    theirs.set_body(EARLY)
    stranger.send(theirs, caller)
    wire.run(0.1)
    asked = asked_of(caller)
    assert (asked.offer, asked.method, asked.early) == (EARLY, "UPDATE", True)
    asked.respond("v=0 ours")
    wire.run(0.1)
    assert stranger.statuses()[-1] == 200
    assert call.local_sdp == "v=0 ours"
    okay = reply(invite, 200, to_tag="x")
    okay.headers.set("Contact", "<sip:bob@10.0.0.9:5060>")
    stranger.send(okay, caller)
    wire.run(0.1)
    assert call.state is CallState.UP


def test_an_update_in_an_early_dialog_before_a_reliable_answer_is_491() -> None:
    """Our offer in the INVITE is still open there."""
    wire, caller, stranger = early_call(answered=False)
    invite = wire.requests("INVITE")[0]
    theirs = request("UPDATE", caller, call_id=invite.call_id, sdp=EARLY, from_tag="x")
    theirs.replace("To", invite.require("From"))
    stranger.send(theirs, caller)
    wire.run(0.1)
    assert stranger.statuses()[-1] == 491


def test_a_bye_in_an_early_dialog_is_no_end() -> None:
    """RFC 3261 section 15: a callee that has not answered cannot hang up."""
    wire, caller, stranger = early_call(answered=True)
    invite = wire.requests("INVITE")[0]
    bye = request("BYE", caller, call_id=invite.call_id, from_tag="x")
    bye.replace("To", invite.require("From"))
    stranger.send(bye, caller)
    wire.run(0.1)
    assert stranger.statuses()[-1] == 481
    (call,) = caller.agent.calls
    assert call.state is CallState.PROCEEDING


def test_the_owner_of_the_callee_may_update_after_the_prack() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    invited(stranger, callee)
    ringing(callee, EARLY)
    wire.run(0.1)
    with pytest.raises(WrongState):
        started(callee)
    prack(stranger, callee, provisional(stranger))
    got = started(callee)
    wire.run(0.1)
    (sent,) = wire.requests("UPDATE")
    okay = reply(sent, 200)
    okay.set_body(OFFER)
    stranger.send(okay, callee)
    wire.run(0.1)
    assert got == [OFFER]
