"""Calls over a wire that loses, doubles and reorders: set up and ended, or a typed failure."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_phone.errors import CallError
from qwen3tts_phone.sdp.session import SdpSession, parse
from qwen3tts_phone.sip.call.state import Answered, CallState, Ended, ReinviteReceived
from tests.sip.wire import ANSWER, OFFER, Phone, Wire, pair


def everything_is_over(wire: Wire, *phones: Phone) -> None:
    for phone in phones:
        assert not phone.agent.calls
        assert len(phone.agent.layer) == 0
        ends = [event for event in phone.events if isinstance(event, Ended)]
        assert len(ends) <= 1
        for event in ends:
            assert event.error is None or isinstance(event.error, CallError)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0.0, 0.1, 0.3, 0.5]),
    doubling=st.sampled_from([0.0, 0.3, 1.0]),
    jitter_s=st.sampled_from([0.0, 0.3, 2.0]),
    by_caller=st.booleans(),
)
def test_a_call_is_set_up_and_ended_or_fails_by_name(
    seed: int, loss: float, doubling: float, jitter_s: float, by_caller: bool
) -> None:
    wire, caller, callee = pair(seed=seed, loss=loss, doubling=doubling, jitter_s=jitter_s)
    call = caller.call(callee)
    wire.run(40.0)
    if call.state is CallState.UP:
        assert caller.events[-1] == Answered(ANSWER)
        (theirs,) = callee.calls
        if by_caller or theirs.state is not CallState.UP:
            call.hang_up(wire.now)
        else:
            theirs.hang_up(wire.now)
    else:
        call.hang_up(wire.now)
    wire.run(150.0)
    if call.state is CallState.UP and not any(bye.delivered for bye in wire.sent("BYE")):
        # All eleven were lost (1 in 2000 at half of them): no one could know.
        call.hang_up(wire.now)
        wire.run(150.0)
    assert isinstance(caller.events[-1], Ended)
    assert len(callee.calls) <= 1
    everything_is_over(wire, caller)
    if loss == 0.0:
        everything_is_over(wire, callee)
        assert Answered(ANSWER) in caller.events


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), after_s=st.floats(0.0, 3.0))
def test_a_cancelled_call_ends_at_both_sides_whenever_the_cancel_comes(
    seed: int, after_s: float
) -> None:
    wire, caller, callee = pair(seed=seed, loss=0.3, jitter_s=0.2)
    callee.answers_with = None
    call = caller.call(callee)
    wire.run(1.0)
    if callee.calls:
        callee.calls[0].ring(wire.now)
    wire.run(after_s)
    call.hang_up(wire.now)
    if callee.calls and seed % 2 and callee.calls[0].state is CallState.RINGING:
        callee.calls[0].answer(ANSWER, wire.now)
    wire.run(150.0)
    everything_is_over(wire, caller)
    assert isinstance(caller.events[-1], Ended)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_changes_from_both_sides_over_a_bad_wire_end_in_an_answer_or_an_error(seed: int) -> None:
    wire, caller, callee = pair(seed=seed, jitter_s=0.1)
    call = caller.call(callee)
    wire.run(5.0)
    wire.loss, wire.doubling = 0.2, 0.2
    got: list[str | CallError] = []
    for phone in (caller, callee):
        ours = next(iter(phone.agent.calls))

        def notify(event: object, phone: Phone = phone) -> None:
            phone.events.append(event)  # type: ignore[arg-type]
            if isinstance(event, ReinviteReceived):
                event.respond(ANSWER)

        ours.notify = notify
        ours.modification.start(OFFER, got.append, wire.now)
    wire.run(100.0)
    assert len(got) == 2
    call.hang_up(wire.now)
    wire.run(150.0)
    everything_is_over(wire, caller)


@pytest.mark.parametrize("seed", range(5))
def test_twenty_calls_at_once_over_a_bad_wire_do_not_disturb_each_other(seed: int) -> None:
    wire, caller, callee = pair(seed=seed, loss=0.1, doubling=0.1, jitter_s=0.1)
    calls = [caller.call(callee) for _ in range(20)]
    wire.run(40.0)
    assert all(call.state is CallState.UP for call in calls)
    assert len(callee.calls) == 20
    for call in calls:
        call.hang_up(wire.now)
    wire.run(100.0)
    assert not caller.agent.calls
    assert not callee.agent.calls


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    changes=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=6),
)
def test_over_a_bad_wire_each_hold_gets_its_own_answer_and_versions_only_rise(
    seed: int, changes: list[tuple[bool, bool]]
) -> None:
    wire, caller, callee = pair(seed=seed, jitter_s=0.3)
    sides = (SdpSession("10.0.0.1", 4000), SdpSession("10.0.0.2", 5000))
    callee.answers_with = sides[1].answer(sides[0].offer())[0]
    call = caller.call(callee, sdp=sides[0].offer())
    wire.run(5.0)
    calls = (call, callee.calls[0])
    sides[0].accept(callee.answers_with)
    wire.loss, wire.doubling = 0.25, 0.2
    for each, session in zip(calls, sides, strict=True):

        def notify(event: object, session: SdpSession = session) -> None:
            if isinstance(event, ReinviteReceived):
                event.respond(session.answer(event.offer or "")[0])

        each.notify = notify
    for by_callee, hold in changes:
        session, got = sides[by_callee], list[str | CallError]()

        def offer(session: SdpSession = session, hold: bool = hold) -> str:
            return session.offer("sendonly" if hold else "sendrecv")

        calls[by_callee].modification.start(offer, got.append, wire.now)
        wire.until(lambda got=got: bool(got))  # type: ignore[misc]
        if not isinstance(got[0], str):
            break
        direction = parse(got[0]).audio.direction
        assert direction in (("recvonly", "inactive") if hold else ("sendrecv", "sendonly"))
        session.accept(got[0])
    for host in ("10.0.0.1", "10.0.0.2"):
        said = [c.message.sdp for c in wire.carried if c.source.host == host and c.message.sdp]
        versions = [parse(text).version for text in dict.fromkeys(said)]
        assert versions == sorted(set(versions))
