"""Verdicts: measures and limits, from what was said and heard when."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_rehearsal.lines import CallEnd
from qwen3tts_rehearsal.results import TurnSpan, Verdict
from qwen3tts_rehearsal.scenario import Ending, Expect, Webhook, Words
from qwen3tts_rehearsal.tracks import Segment
from qwen3tts_rehearsal.verdicts import (
    TOLERANCE_S,
    CallerTurn,
    Observation,
    Post,
    cut_offs,
    figures,
    interruptions,
    judge,
    matches,
    responses,
    silences,
)


def turn(start: float, end: float, kind: str = "turn", *, answered: bool = True) -> CallerTurn:
    return CallerTurn(kind, start, end, "hello", answered)


def seen(
    *turns: CallerTurn, agent: tuple[tuple[float, float], ...] = (), **changes: Any
) -> Observation:
    fields: dict[str, Any] = {
        "duration_s": 20.0,
        "turns": turns,
        "speech": tuple(Segment(start, end) for start, end in agent),
        "end": CallEnd("caller", 0.0),
        **changes,
    }
    return Observation(**fields)


def verdict(name: str, observation: Observation, **limits: Any) -> Verdict:
    (found,) = (each for each in judge(Expect(**limits), observation) if each.name == name)
    return found


def test_without_expectations_the_script_alone_is_judged() -> None:
    (only,) = judge(Expect(), seen())
    assert only == Verdict("script", True, 0, 0)


def test_a_script_that_the_agent_ends_early_has_failed() -> None:
    early = seen(end=CallEnd("agent", 0.0), steps_left=3)
    (script, *_) = judge(Expect(), early)
    assert not script.passed
    assert "hung up 3 steps before the end" in script.detail
    (script, by) = judge(Expect(hang_up=Ending("agent")), early)
    assert script.passed
    assert by.passed


def test_a_line_that_failed_is_named() -> None:
    (script,) = judge(Expect(), seen(end=CallEnd("line", 0.0, "no media"), steps_left=1))
    assert script.detail == "the line failed: no media 1 steps before the end of the script"


@pytest.mark.parametrize(("begin", "passed"), [(1.0, True), (2.03, True), (2.05, False)])
def test_the_first_response_has_a_limit_with_a_tolerance(begin: float, passed: bool) -> None:
    found = verdict("first_response_s", seen(agent=((begin, 4.0),)), first_response_s=2.0)
    assert found.passed is passed
    assert found.measured == begin
    assert ("close to the limit" in found.detail) is (begin > 1.8)


def test_an_agent_that_never_speaks_fails_every_wait() -> None:
    silent = seen(turn(1.0, 2.0))
    for name in ("first_response_s", "response_s", "dead_air_s"):
        assert not verdict(name, silent, **{name: 3.0}).passed, name
    assert "never spoke" in verdict("first_response_s", silent, first_response_s=3.0).detail
    assert "no answer to the turn" in verdict("response_s", silent, response_s=3.0).detail


def test_the_longest_response_counts_and_is_named() -> None:
    talk = seen(turn(1.0, 2.0), turn(6.0, 7.0), agent=((2.5, 4.0), (8.5, 9.0)))
    assert [each.wait_s for each in responses(talk)] == [0.5, 1.5]
    found = verdict("response_s", talk, response_s=1.0)
    assert (found.passed, found.measured) == (False, 1.5)
    assert "at 6.0 s" in found.detail


def test_what_is_not_to_be_answered_is_not_waited_for() -> None:
    talk = seen(turn(1.0, 2.0), turn(6.0, 7.0, answered=False), agent=((2.5, 4.0),))
    assert [each.wait_s for each in responses(talk)] == [0.5]
    assert "awaits no answer" in verdict("response_s", seen(), response_s=1.0).detail


def test_an_answer_after_the_next_turn_is_none_to_the_first() -> None:
    talk = seen(turn(1.0, 2.0), turn(6.0, 7.0), agent=((7.5, 9.0),))
    assert [each.wait_s for each in responses(talk)] == [None, 0.5]


@pytest.mark.parametrize(("begin", "count"), [(0.5, 0), (1.5, 1), (2.97, 0), (3.0, 0), (3.5, 0)])
def test_who_begins_before_the_caller_has_ended_cuts_off(begin: float, count: int) -> None:
    talk = seen(turn(1.0, 3.0), agent=((begin, 5.0),))
    assert len(cut_offs(talk)) == count
    assert verdict("cut_offs", talk, cut_offs=0).passed is (count == 0)


def test_interrupting_the_agent_is_no_cut_off() -> None:
    talk = seen(turn(1.0, 3.0, "barge_in"), agent=((0.0, 1.2), (2.0, 3.5)))
    assert cut_offs(talk) == []


def test_a_cut_off_is_an_answer_without_a_wait() -> None:
    talk = seen(turn(1.0, 3.0), agent=((2.0, 5.0),))
    assert [each.wait_s for each in responses(talk)] == [0.0]
    broken_off = seen(turn(1.0, 3.0), agent=((2.0, 2.2), (3.5, 5.0)))
    assert [each.wait_s for each in responses(broken_off)] == [0.5]


def test_a_silence_that_the_caller_ends_after_the_agent_is_the_callers() -> None:
    talk = seen(turn(5.0, 6.0), turn(15.0, 16.0), agent=((1.0, 2.0), (7.0, 8.0)), duration_s=17.0)
    assert silences(talk) == [(0.0, 1.0), (6.0, 7.0), (16.0, 17.0)]


def test_a_pause_on_purpose_is_no_dead_air() -> None:
    agent = ((0.0, 0.9), (9.0, 10.0))
    paused = seen(turn(1.0, 2.0), agent=agent, pauses=((2.0, 8.0),), duration_s=10.0)
    assert verdict("dead_air_s", paused, dead_air_s=1.0).passed
    waiting = seen(turn(1.0, 2.0), agent=agent, duration_s=10.0)
    assert not verdict("dead_air_s", waiting, dead_air_s=1.0).passed


def test_a_silence_within_the_agents_answer_is_its_own() -> None:
    talk = seen(agent=((0.5, 1.0), (6.0, 7.0)), duration_s=7.5)
    found = verdict("dead_air_s", talk, dead_air_s=3.0)
    assert (found.passed, found.measured) == (False, 5.0)
    assert "from 1.0 s on" in found.detail


def test_an_interruption_is_timed_to_the_agents_last_sound() -> None:
    talk = seen(turn(2.0, 3.0, "barge_in"), agent=((1.0, 2.4), (4.0, 5.0)))
    ((_, wait),) = interruptions(talk)
    assert wait == pytest.approx(0.4)
    assert verdict("interruption_ms", talk, interruption_ms=500).passed
    assert not verdict("interruption_ms", talk, interruption_ms=300).passed


def test_an_agent_that_talks_on_to_its_end_has_a_long_time() -> None:
    talk = seen(turn(2.0, 3.0, "barge_in"), agent=((1.0, 3.0), (3.2, 6.0)))
    ((_, wait),) = interruptions(talk)
    assert wait == pytest.approx(4.0)


def test_an_agent_that_never_stops_is_said_to_have_gone_on() -> None:
    talk = seen(turn(2.0, 3.0, "barge_in"), agent=((1.0, 20.0),))
    found = verdict("interruption_ms", talk, interruption_ms=500)
    assert not found.passed
    assert "went on" in found.detail
    assert "no one barged in" in verdict("interruption_ms", seen(), interruption_ms=500).detail


@pytest.mark.parametrize(
    ("speech", "stops"),
    [
        ((Segment(1.0, 8.0),), 0),
        ((Segment(1.0, 2.6, stopped=True), Segment(3.2, 6.0)), 1),
        ((Segment(1.0, 2.6), Segment(3.2, 6.0)), 0),  # between two sentences
        ((Segment(1.0, 2.6), Segment(3.8, 6.0)), 1),
        ((Segment(1.0, 5.0, stopped=True),), 0),  # later
        ((Segment(5.0, 6.0),), 0),
    ],
)
def test_a_backchannel_that_stops_the_agent_is_counted(
    speech: tuple[Segment, ...], stops: int
) -> None:
    talk = seen(turn(2.0, 2.4, "backchannel", answered=False), speech=speech)
    found = verdict("backchannel_stops", talk, backchannel_stops=0)
    assert (found.measured, found.passed) == (stops, stops == 0)


def test_both_speaking_is_measured_and_backchannels_are_not() -> None:
    talk = seen(turn(1.0, 3.0), turn(6.0, 6.5, "backchannel"), agent=((2.2, 4.0), (5.0, 8.0)))
    found = verdict("talk_over_s", talk, talk_over_s=0.5)
    assert (found.passed, found.measured) == (False, 0.8)


def spans(*texts: str) -> tuple[TurnSpan, ...]:
    return tuple(TurnSpan("agent", number, number + 0.5, text) for number, text in enumerate(texts))


@pytest.mark.parametrize(
    ("words", "passed"),
    [
        (Words(contains="table for 2"), True),
        (Words(contains="two tables"), False),
        (Words(matches="tables? for"), True),
        (Words(matches="^seven"), False),
        (Words(excludes="sorry"), True),
        (Words(excludes="booked"), False),
        (Words(digits="271"), True),
        (Words(digits="217"), False),
    ],
)
def test_words_are_found_in_all_that_the_agent_says(words: Words, passed: bool) -> None:
    talk = seen(spans=spans("I have booked a table for two.", "Seven, one!"))
    assert verdict("heard[0]", talk, heard=(words,)).passed is passed


def test_words_without_a_recogniser_fail_with_the_reason() -> None:
    found = verdict("heard[0]", seen(words_known=False), heard=(Words(excludes="x"),))
    assert not found.passed
    assert "--stt" in found.detail
    assert not verdict("repeats", seen(words_known=False), repeats=0).passed


def test_sentences_said_again_are_counted() -> None:
    talk = seen(spans=spans("We are open until six.", "Well. We are open until 6!", "Yes. Yes."))
    found = verdict("repeats", talk, repeats=0)
    assert (found.passed, found.measured) == (False, 1)


def test_keys_codec_and_gaps() -> None:
    talk = seen(keys="12", codec="PCMU", gaps=(1.5, 2.0))
    assert verdict("keys", talk, keys="12").passed
    assert not verdict("keys", talk, keys="123").passed
    assert verdict("codec", talk, codec="PCMU").passed
    assert not verdict("codec", talk, codec="G722").passed
    assert "first at 1.50 s" in verdict("gaps", talk, gaps=1).detail


def test_the_end_of_the_call() -> None:
    talk = seen(turn(1.0, 2.0), end=CallEnd("agent", 0.0), duration_s=9.0)
    assert verdict("hang_up.by", talk, hang_up=Ending("agent")).passed
    assert not verdict("hang_up.by", talk, hang_up=Ending("caller")).passed
    assert not verdict("hang_up.within_s", talk, hang_up=Ending(within_s=5.0)).passed
    assert verdict("hang_up.within_s", talk, hang_up=Ending(within_s=7.0)).passed
    assert not verdict("hang_up.after_s", talk, hang_up=Ending(after_s=10.0)).passed


BOOKING = {"id": 7, "booking": {"people": 2, "days": ["friday", "sunday"]}}


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ({}, True),
        ({"id": 7}, True),
        ({"booking.people": 2, "booking.days.1": "sunday"}, True),
        ({"booking.people": 3}, False),
        ({"booking.days.2": "sunday"}, False),
        ({"booking.days.x": "sunday"}, False),
        ({"nothing": None}, False),
    ],
)
def test_a_posts_values_are_looked_up_by_their_names(where: dict[str, Any], found: bool) -> None:
    assert matches(BOOKING, where) is found


def test_posts_of_a_path_are_counted_and_timed() -> None:
    talk = seen(turn(1.0, 2.0), posts=(Post(5.0, "/book", BOOKING), Post(6.0, "/else", {})))
    assert verdict("webhook[0]", talk, webhook=(Webhook("/book", {"id": 7}),)).passed
    missing = verdict("webhook[0]", talk, webhook=(Webhook("/book", {"id": 8}),))
    assert not missing.passed
    assert "1 posts came" in missing.detail
    assert verdict("webhook[0]", talk, webhook=(Webhook("/none", count=0),)).passed
    assert verdict("webhook[0]", talk, webhook=(Webhook("/book", within_s=3.0),)).passed
    assert not verdict("webhook[0]", talk, webhook=(Webhook("/book", within_s=2.0),)).passed


times = st.lists(
    st.floats(0.0, 30.0).map(lambda value: round(value, 3)), min_size=2, max_size=12, unique=True
)
LIMITS = Expect(
    first_response_s=2.0,
    response_s=2.0,
    cut_offs=0,
    dead_air_s=3.0,
    talk_over_s=0.5,
    interruption_ms=800,
    backchannel_stops=0,
    gaps=0,
)


@given(times, times, st.lists(st.sampled_from(["turn", "barge_in", "backchannel"]), min_size=6))
def test_any_call_has_one_verdict_for_each_limit_and_is_judged_the_same_again(
    own: list[float], theirs: list[float], kinds: list[str]
) -> None:
    pairs = list(zip(sorted(own)[::2], sorted(own)[1::2], strict=False))
    turns = [turn(a, b, kind) for (a, b), kind in zip(pairs, kinds, strict=False)]
    agent = tuple(zip(sorted(theirs)[::2], sorted(theirs)[1::2], strict=False))
    talk = seen(*turns, agent=agent, duration_s=31.0)
    first = judge(LIMITS, talk)
    assert first == judge(LIMITS, talk)
    assert len(first) == 9
    assert all(value >= 0.0 for value in figures(talk).values())


@given(times, times, st.floats(-0.019, 0.019))
def test_a_shift_within_a_frame_flips_no_verdict_that_is_not_at_its_limit(
    own: list[float], theirs: list[float], shift: float
) -> None:
    pairs = list(zip(sorted(own)[::2], sorted(own)[1::2], strict=False))
    turns = [turn(a, b) for a, b in pairs if b - a > 0.1]
    agent = [(a, b) for a, b in zip(sorted(theirs)[::2], sorted(theirs)[1::2], strict=False)]
    near = any(
        abs(a - edge) < TOLERANCE_S + 0.02
        for a, _ in agent
        for each in turns
        for edge in (each.start_s + TOLERANCE_S, each.end_s - TOLERANCE_S)
    )
    if near:
        return
    moved = tuple((max(0.0, a + shift), b + shift) for a, b in agent)
    one = cut_offs(seen(*turns, agent=tuple(agent), duration_s=31.0))
    assert one == cut_offs(seen(*turns, agent=moved, duration_s=31.0))
