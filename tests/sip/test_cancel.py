"""CANCEL, and the answers that cross it."""

from __future__ import annotations

from qwen3tts_phone.errors import CalleeUnreachable
from qwen3tts_phone.sip.call.incoming import UNANSWERED_S
from qwen3tts_phone.sip.call.state import CallState
from qwen3tts_phone.sip.message.message import reply
from tests.sip.wire import (
    ANSWER,
    OFFER,
    Phone,
    Stranger,
    ended,
    lose,
    pair,
    request,
    stranger_up,
)


def test_cancel_waits_for_a_provisional_answer() -> None:
    wire, caller, callee = pair()
    callee.answers_with = None
    call = caller.call(callee)
    call.cancel(wire.now)
    assert "CANCEL" not in wire.story()
    wire.run(0.005)
    assert "CANCEL" not in wire.story()
    wire.run(5.0)
    assert wire.story().index("CANCEL") > wire.story().index("100 INVITE")
    assert (ended(caller).by, ended(caller).status) == ("local", 487)
    assert (ended(callee).by, ended(callee).status) == ("remote", 487)
    assert ended(caller).error is None


def test_a_cancel_without_any_answer_ends_with_timer_b_and_was_never_sent() -> None:
    wire, caller, callee = pair(loss=1.0)
    call = caller.call(callee)
    call.cancel(wire.now)
    wire.run(33.0)
    assert "CANCEL" not in wire.story()
    assert (ended(caller).by, ended(caller).error) == ("local", None)


def test_a_200_that_crosses_the_cancel_is_acknowledged_and_hung_up() -> None:
    wire, caller, callee = pair()
    callee.answers_with = None
    call = caller.call(callee)
    wire.run(0.5)
    call.cancel(wire.now)
    callee.calls[0].answer(ANSWER, wire.now)
    wire.run(2.0)
    story = wire.story()
    assert story.count("ACK") == 1
    assert story.index("ACK") < story.index("BYE")
    assert caller.kinds() == ["Ended"]
    assert ended(caller).by == "local"
    assert not caller.agent.calls
    assert not callee.agent.calls


def test_the_487_is_acknowledged_though_the_call_is_given_up() -> None:
    wire, caller, callee = pair()
    callee.answers_with = None
    call = caller.call(callee)
    wire.run(0.5)
    lose(wire, "ACK")
    call.cancel(wire.now)
    wire.run(5.0)
    assert wire.story().count("487 INVITE") == 2
    assert wire.story().count("ACK") == 2


def test_a_callee_that_ignores_the_cancel_is_given_up() -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)
    stranger.respond = lambda r: [reply(r, 180 if r.method == "INVITE" else 200, to_tag="x")]
    call = caller.call(stranger)
    wire.run(0.5)
    call.cancel(wire.now)
    wire.run(33.0)
    assert ended(caller).by == "local"
    assert not caller.agent.calls
    wire.run(60.0)
    assert len(caller.agent.layer) == 0


def test_a_callee_that_rang_and_ignores_our_giving_up_is_not_said_to_be_silent() -> None:
    wire, _, _ = pair()
    caller = Phone(wire, "10.0.0.3", ring_timeout_s=20.0)
    stranger = Stranger(wire)
    stranger.respond = lambda r: [reply(r, 180 if r.method == "INVITE" else 200, to_tag="x")]
    caller.call(stranger)
    wire.run(60.0)
    error = ended(caller).error
    assert isinstance(error, CalleeUnreachable)
    assert (ended(caller).by, error.why) == ("timeout", "no_answer")


def test_a_cancel_for_nothing_is_481() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    stranger.send(request("CANCEL", callee), callee)
    wire.run(1.0)
    assert stranger.statuses() == [481]


def test_a_stranger_who_guesses_the_branch_cannot_cancel_the_call_of_another() -> None:
    wire, _, callee = pair()
    callee.answers_with = None
    caller, other = Stranger(wire), Stranger(wire, "10.0.0.66")
    caller.send(request("INVITE", callee, sdp=OFFER), callee)
    wire.run(0.2)
    other.send(request("CANCEL", callee), callee)
    wire.run(0.2)
    assert other.statuses() == [481]
    assert callee.calls[0].state is CallState.RECEIVED
    caller.send(request("CANCEL", callee), callee)
    wire.run(0.2)
    assert sorted(caller.statuses())[-2:] == [200, 487]


def test_a_cancel_after_the_answer_changes_nothing() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    stranger.send(request("INVITE", callee, sdp=OFFER), callee)
    wire.run(0.2)
    stranger.send(request("CANCEL", callee), callee)
    wire.run(0.2)
    assert stranger.statuses()[-1] == 200
    assert callee.calls[0].state is CallState.ANSWERED


def test_an_invitation_that_has_expired_is_over_as_if_cancelled() -> None:
    wire, _, callee = pair()
    callee.answers_with = None
    stranger = Stranger(wire)
    stranger.send(request("INVITE", callee, sdp=OFFER, extra=(("Expires", "5"),)), callee)
    wire.run(4.9)
    callee.calls[0].ring(wire.now)
    wire.run(0.2)
    assert stranger.statuses() == [100, 180, 487]
    assert (ended(callee).by, ended(callee).error) == ("remote", None)


def test_an_invitation_that_is_answered_does_not_expire() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    stranger_up(wire, stranger, callee, extra=(("Expires", "5"),))
    wire.run(60.0)
    assert callee.calls[0].state is CallState.UP


def test_a_caller_that_vanishes_while_it_rings_is_given_up_in_the_end() -> None:
    wire, _, callee = pair()
    callee.answers_with = None
    stranger = Stranger(wire)
    stranger.send(request("INVITE", callee, sdp=OFFER), callee)
    wire.run(0.2)
    wire.run(UNANSWERED_S - 1.0)
    callee.calls[0].ring(wire.now)
    wire.run(UNANSWERED_S - 1.0)
    assert callee.calls[0].state is CallState.RINGING
    wire.run(40.0)
    assert stranger.statuses()[-1] == 480
    assert (ended(callee).by, ended(callee).status) == ("timeout", 480)
    assert not callee.agent.calls
    assert len(callee.agent.layer) == 0
