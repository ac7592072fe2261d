"""Calls between two agents on a fake wire: set up, refused, ended; forks."""

from __future__ import annotations

import itertools

import pytest

from qwen3tts_phone.errors import CalleeUnreachable, CallRefused, WrongState
from qwen3tts_phone.sip.call.incoming import UNANSWERED_S
from qwen3tts_phone.sip.call.state import (
    CALL_TRANSITIONS,
    MODIFICATION_TRANSITIONS,
    Answered,
    CallState,
    CallStep,
    EarlyMedia,
    ModificationEvent,
    ModificationState,
)
from qwen3tts_phone.sip.message.message import Request, Response, reply
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
    up,
)


@pytest.mark.parametrize(
    ("state", "step"),
    [pair_ for pair_ in itertools.product(CallState, CallStep) if pair_ not in CALL_TRANSITIONS],
    ids=lambda value: value.name,
)
def test_what_the_table_of_calls_lacks_is_wrong_state(state: CallState, step: CallStep) -> None:
    _wire, caller, callee = pair()
    call = caller.call(callee)
    call.state = state
    with pytest.raises(WrongState, match=state.name):
        call.step(step)
    assert call.state is state


@pytest.mark.parametrize(
    ("phase", "move"),
    [
        pair_
        for pair_ in itertools.product(ModificationState, ModificationEvent)
        if pair_ not in MODIFICATION_TRANSITIONS
    ],
    ids=lambda value: value.name,
)
def test_what_the_table_of_changes_lacks_is_wrong_state(
    phase: ModificationState, move: ModificationEvent
) -> None:
    _wire, caller, callee = pair()
    call = caller.call(callee)
    call.modification.phase = phase
    with pytest.raises(WrongState, match=phase.name):
        call.modification.move(move)


def test_every_state_of_a_call_leads_to_its_end() -> None:
    for state in CallState:
        reached = {state}
        while more := {to for (at, _), to in CALL_TRANSITIONS.items() if at in reached} - reached:
            reached |= more
        assert CallState.ENDED in reached, state


def test_a_call_rings_is_answered_and_is_hung_up_by_the_caller() -> None:
    wire, caller, callee = pair()
    call = caller.call(callee)
    wire.run(1.0)
    call.bye(wire.now)
    wire.run(1.0)
    assert caller.kinds() == ["Ringing", "Answered", "Ended"]
    assert callee.kinds() == ["Answered", "Ended"]
    assert (ended(caller).by, ended(callee).by) == ("local", "remote")
    assert wire.story() == [
        *("INVITE", "100 INVITE", "180 INVITE", "200 INVITE", "PRACK", "ACK", "200 PRACK"),
        *("BYE", "200 BYE"),
    ]
    assert not caller.agent.calls
    assert not callee.agent.calls


def test_the_callee_hangs_up() -> None:
    wire, caller, callee = pair()
    up(wire, caller, callee)
    callee.calls[0].bye(wire.now)
    wire.run(1.0)
    assert (ended(caller).by, ended(callee).by) == ("remote", "local")


def test_nothing_is_remembered_of_a_call_a_minute_after_its_end() -> None:
    wire, caller, callee = pair()
    up(wire, caller, callee)
    callee.calls[0].bye(wire.now)
    wire.run(60.0)
    for phone in (caller, callee):
        assert len(phone.agent.layer) == 0
        assert phone.agent.next_deadline() is None
        assert not phone.agent.registry
        assert not phone.agent.calls
        assert not phone.agent.registry.usages


def test_both_hanging_up_at_once_is_an_end_for_both() -> None:
    wire, caller, callee = pair()
    call = caller.call(callee)
    wire.run(1.0)
    call.bye(wire.now)
    callee.calls[0].bye(wire.now)
    wire.run(60.0)
    assert wire.story().count("200 BYE") == 2
    assert not caller.agent.calls
    assert not callee.agent.calls


def test_an_offer_left_to_the_callee_is_answered_in_the_ack() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    stranger.send(request("INVITE", callee), callee)
    wire.run(0.2)
    assert callee.calls[0].offer is None
    okay = stranger.got[-1]
    assert isinstance(okay, Response)
    assert okay.sdp == ANSWER
    ack = request("ACK", callee, branch="z9hG4bKack", to_tag=okay.to.tag or "", sdp=OFFER)
    stranger.send(ack, callee)
    wire.run(0.2)
    assert callee.events == [Answered(OFFER)]


def test_early_media_is_told_before_the_answer() -> None:
    wire, caller, callee = pair()
    callee.answers_with = None
    caller.call(callee)
    wire.run(0.5)
    callee.calls[0].ring(wire.now, ANSWER)
    wire.run(0.5)
    assert caller.kinds() == ["Ringing", "EarlyMedia"]
    assert caller.events[1] == EarlyMedia(ANSWER)


@pytest.mark.parametrize("status", [302, 404, 486, 488, 503, 603])
def test_a_refusal_is_told_with_status_and_reason(status: int) -> None:
    wire, caller, callee = pair()
    callee.answers_with = None
    caller.call(callee)
    wire.run(0.5)
    callee.calls[0].reject(status, wire.now)
    wire.run(60.0)
    event = ended(caller)
    assert (event.by, event.status) == ("remote", status)
    assert isinstance(event.error, CallRefused)
    assert event.error.status == status
    assert wire.story().count("ACK") == 1


@pytest.mark.parametrize("status", [*range(300, 700, 7), 410, 484, 487, 600, 604, 606])
def test_every_refusal_says_what_to_do(status: int) -> None:
    error = CallRefused(status, "Because")
    assert str(status) in error.message
    assert error.remedy.endswith(".")


def test_a_redirection_says_where_to() -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)

    def moved(request: Request) -> list[Response]:
        response = reply(request, 302, "Moved", to_tag="x")
        response.add("Contact", "<sip:other@10.0.0.7>")
        return [response] if request.method == "INVITE" else []

    stranger.respond = moved
    caller.call(stranger)
    wire.run(1.0)
    assert "call sip:other@10.0.0.7 instead" in str(ended(caller).error)


def test_silence_is_unreachable_after_timer_b() -> None:
    wire, caller, callee = pair(loss=1.0)
    caller.call(callee)
    wire.run(31.9)
    assert not caller.events
    wire.run(0.2)
    event = ended(caller)
    assert event.by == "timeout"
    assert isinstance(event.error, CalleeUnreachable)
    assert "firewall" in event.error.remedy
    assert len(wire.sent("INVITE")) == 7


def test_a_call_that_rings_for_ever_is_cancelled() -> None:
    wire, _, callee = pair()
    caller = Phone(wire, "10.0.0.3", ring_timeout_s=20.0)
    callee.answers_with = None
    caller.call(callee)
    wire.run(0.5)
    callee.calls[0].ring(wire.now)
    wire.run(25.0)
    assert (ended(caller).by, ended(caller).status) == ("timeout", 487)
    assert isinstance(ended(caller).error, CalleeUnreachable)


def forked(stranger: Stranger, *tags: str) -> None:
    def answers(request: Request) -> list[Response]:
        if request.method != "INVITE":
            return [reply(request, 200)] if request.method == "BYE" else []
        responses = []
        for status in (180, 200):
            for tag in tags:
                response = reply(request, status, to_tag=tag)
                response.add("Contact", f"<sip:{tag}@10.0.0.9:5060>")
                response.set_body(ANSWER if status == 200 else None)
                responses.append(response)
        return responses

    stranger.respond = answers


def test_of_a_fork_the_first_answer_is_the_call_and_the_others_are_hung_up() -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)
    forked(stranger, "desk", "mobile", "car")
    call = caller.call(stranger)
    wire.run(2.0)
    assert call.state is CallState.UP
    assert call.dialog is not None
    assert call.dialog.remote_tag == "desk"
    assert caller.kinds() == ["Ringing", "Answered"]
    assert sorted(r.uri for r in wire.requests("ACK")) == [
        *("sip:car@10.0.0.9:5060", "sip:desk@10.0.0.9:5060", "sip:mobile@10.0.0.9:5060"),
    ]
    assert sorted(r.to.tag or "" for r in wire.requests("BYE")) == ["car", "mobile"]


def test_what_the_branches_of_a_fork_describe_early_is_kept_apart_by_their_tags() -> None:
    """Some phones describe their media in the 183 and not again in the 200."""
    wire, caller, _ = pair()
    stranger = Stranger(wire)

    def ring(request: Request) -> list[Response]:
        responses = []
        for tag, sdp in (("desk", ANSWER), ("mobile", OFFER), ("desk", ANSWER)):
            response = reply(request, 183, to_tag=tag)
            response.set_body(sdp)
            responses.append(response)
        okay = reply(request, 200, to_tag="desk")
        okay.add("Contact", "<sip:desk@10.0.0.9:5060>")
        return [*responses, okay] if request.method == "INVITE" else []

    stranger.respond = ring
    caller.call(stranger)
    wire.run(0.5)
    assert caller.events[1:] == [EarlyMedia(ANSWER), EarlyMedia(OFFER), Answered(ANSWER)]


def test_a_flood_of_forked_answers_is_bounded() -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)
    forked(stranger, *(f"t{n}" for n in range(200)))
    call = caller.call(stranger)
    wire.run(1.0)
    assert call.state is CallState.UP
    assert len(wire.requests("ACK")) == 16


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
