from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_agent.settings import AgentSettings
from qwen3tts_agent.turn_taking import (
    OVERTIME_S,
    TRANSITIONS,
    Phase,
    TurnAction,
    TurnEvent,
    TurnTaking,
)

H = TurnEvent


def taking(**settings: object) -> TurnTaking:
    return TurnTaking(AgentSettings(**settings), 100.0)  # type: ignore[arg-type]


def phase(core: TurnTaking) -> Phase:
    return core.phase


def test_words_are_replied_to_and_then_it_is_the_callers_turn() -> None:
    core = taking()
    assert core.take(H.WORDS, 101) == (TurnAction.ASK,)
    assert core.take(H.REPLIED, 105) == ()
    assert phase(core) is Phase.WAITING


def test_a_noise_that_stopped_us_lets_us_go_on_and_words_do_not() -> None:
    core = taking()
    core.take(H.WORDS, 101)
    core.take(H.BARGE_IN, 102)
    assert phase(core) is Phase.INTERRUPTED
    assert core.take(H.NOISE, 103) == (TurnAction.RESUME,)
    core.take(H.BARGE_IN, 104)
    assert core.take(H.WORDS, 105) == (TurnAction.DROP, TurnAction.ASK)
    assert phase(core) is Phase.REPLYING


def test_who_is_not_understood_is_told_so_and_not_while_we_speak() -> None:
    core = taking()
    assert core.take(H.NOT_UNDERSTOOD, 101) == (TurnAction.APOLOGISE,)
    assert core.take(H.NOT_UNDERSTOOD, 102) == ()
    core.take(H.BARGE_IN, 103)
    assert core.take(H.NOT_UNDERSTOOD, 104) == (TurnAction.DROP, TurnAction.APOLOGISE)


def test_a_caller_who_says_nothing_is_asked_so_often_and_then_left() -> None:
    core = taking(quiet_s=10, reprompts=2, hang_up_when_quiet=True)
    for at in (110.0, 122.0):
        assert core.next_at == at
        assert core.tick(at - 0.01) == ()
        assert core.tick(at) == (TurnAction.REPROMPT,)
        core.take(H.REPLIED, at + 2)
    assert core.tick(134.0) == (TurnAction.GOODBYE,)
    assert core.take(H.REPLIED, 135.0) == (TurnAction.HANG_UP,)
    assert core.why == "the caller says nothing"
    assert phase(core) is Phase.OVER


def test_a_caller_who_says_nothing_is_left_alone_after_that_where_nobody_asks_for_more() -> None:
    core = taking(quiet_s=10, reprompts=1)
    core.tick(110.0)
    core.take(H.REPLIED, 112.0)
    assert core.tick(1000.0) == ()


def test_words_begin_the_count_anew() -> None:
    core = taking(quiet_s=10, reprompts=1)
    core.tick(110.0)
    core.take(H.WORDS, 111.0)
    core.take(H.REPLIED, 112.0)
    assert core.tick(122.0) == (TurnAction.REPROMPT,)


@pytest.mark.parametrize("how", ["speaks", "held"])
def test_nobody_is_asked_while_the_caller_speaks_or_holds_us(how: str) -> None:
    core = taking(quiet_s=10)
    if how == "speaks":
        core.voice(True, 105.0)
    else:
        core.hold(True, 105.0)
    assert core.tick(150.0) == ()
    if how == "speaks":
        core.voice(False, 150.0)
    else:
        core.hold(False, 150.0)
    assert core.tick(159.0) == ()
    assert core.tick(160.0) == (TurnAction.REPROMPT,)


def test_nothing_is_asked_where_quiet_s_is_0() -> None:
    assert taking(quiet_s=0).tick(3000.0) == ()


def test_the_time_that_is_over_ends_the_call_after_the_reply() -> None:
    core = taking(max_minutes=1)
    core.take(H.WORDS, 150.0)
    assert core.next_at == 160.0
    assert core.tick(160.0) == ()
    assert phase(core) is Phase.REPLYING
    assert core.take(H.REPLIED, 170.0) == (TurnAction.GOODBYE,)
    assert phase(core) is Phase.LEAVING
    assert core.take(H.REPLIED, 172.0) == (TurnAction.HANG_UP,)
    assert core.why == "the call has lasted 1 minutes"


def test_a_reply_without_an_end_does_not_outlive_the_time_for_long() -> None:
    core = taking(max_minutes=1)
    core.take(H.WORDS, 150.0)
    core.tick(160.0)
    assert core.tick(160.0 + OVERTIME_S) == (TurnAction.DROP, TurnAction.HANG_UP)


def test_the_time_that_is_over_while_nobody_speaks_ends_the_call_at_once() -> None:
    core = taking(max_minutes=1, quiet_s=0)
    assert core.tick(160.0) == (TurnAction.GOODBYE,)


def test_an_interruption_of_which_nothing_comes_is_given_up_but_not_while_the_caller_speaks() -> (
    None
):
    core = taking(stopped_s=30)
    core.take(H.WORDS, 101.0)
    core.take(H.BARGE_IN, 102.0)
    core.voice(True, 102.0)
    assert core.tick(140.0) == ()
    core.voice(False, 140.0)
    assert core.tick(169.0) == ()
    assert core.tick(170.0) == (TurnAction.DROP,)
    assert phase(core) is Phase.WAITING


def test_the_model_may_end_the_call_and_a_caller_who_speaks_then_is_heard() -> None:
    core = taking()
    core.take(H.WORDS, 101.0)
    assert core.take(H.FAREWELL, 102.0, "the model has ended it") == ()
    core.take(H.BARGE_IN, 103.0)
    assert core.take(H.WORDS, 104.0) == (TurnAction.DROP, TurnAction.ASK)
    assert core.why == ""
    assert core.take(H.REPLIED, 105.0) == ()
    core.take(H.WORDS, 106.0)
    core.take(H.FAREWELL, 107.0, "the model has ended it")
    core.take(H.BARGE_IN, 108.0)
    assert core.take(H.NOISE, 109.0) == (TurnAction.RESUME,)
    assert core.take(H.REPLIED, 110.0) == (TurnAction.HANG_UP,)
    assert core.why == "the model has ended it"


def test_what_cannot_happen_is_an_error() -> None:
    core = taking()
    core.take(H.WORDS, 101.0)
    with pytest.raises(ValueError, match="QUIET cannot happen while REPLYING"):
        core.take(H.QUIET, 102.0)


def test_nothing_happens_after_the_end() -> None:
    core = taking(max_minutes=1)
    core.take(H.FAREWELL, 101.0)
    core.take(H.REPLIED, 102.0)
    assert phase(core) is Phase.OVER
    assert [core.take(each, 103.0) for each in TurnEvent] == [()] * len(TurnEvent)
    assert core.tick(1000.0) == ()
    assert core.next_at == float("inf")


FROM_OUTSIDE = [H.WORDS, H.NOISE, H.NOT_UNDERSTOOD, H.BARGE_IN, H.REPLIED, H.FAREWELL]


def test_what_comes_from_outside_may_come_at_any_time() -> None:
    missing = [
        (phase, each)
        for phase in Phase
        for each in FROM_OUTSIDE
        if phase is not Phase.OVER and (phase, each) not in TRANSITIONS
    ]
    assert not missing


events = st.lists(
    st.tuples(
        st.sampled_from([*FROM_OUTSIDE, "tick", "speaks", "silent", "held", "resumed"]),
        st.floats(0, 30),
    ),
    max_size=40,
)


@given(events)
def test_whatever_happens_the_call_is_over_in_time_and_acts_make_sense(
    script: list[tuple[TurnEvent | str, float]],
) -> None:
    core = taking(max_minutes=3, quiet_s=10, reprompts=1, hang_up_when_quiet=True)
    now, replying = 100.0, False
    for what, wait in [*script, *[("tick", 30.0)] * 12]:
        now += wait
        acts = core.tick(now)
        if isinstance(what, TurnEvent):
            acts += core.take(what, now)
        elif what in ("speaks", "silent"):
            core.voice(what == "speaks", now)
        elif what in ("held", "resumed"):
            core.hold(what == "held", now)
        for act in acts:
            if act is TurnAction.RESUME:
                assert replying
            replying = act in (
                TurnAction.ASK,
                TurnAction.APOLOGISE,
                TurnAction.REPROMPT,
                TurnAction.GOODBYE,
                TurnAction.RESUME,
            )
        if core.phase in (Phase.REPLYING, Phase.LEAVING):
            replying = True
    assert phase(core) is Phase.OVER
