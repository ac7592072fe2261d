from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_engine.playout import PlayoutLead
from qwen3tts_engine.schedule_row import (
    FRAME_S,
    FRAME_SAMPLES,
    LONGEST_S,
    TurnTimes,
    chunk_by_load,
    powers_below,
)
from qwen3tts_engine.scheduler import Plan, Scheduler, SchedulerSettings
from qwen3tts_wire.errors import ServerBusy
from tests.engine.schedule_simulation import Call, Costs, Simulation, seconds


def scheduler(**fields: Any) -> Scheduler:
    return Scheduler(SchedulerSettings(**fields))


def ahead(lead_s: float, now: float = 0.0, target_ms: float | None = None) -> PlayoutLead:
    """The lead of a context that already speaks."""
    lead = PlayoutLead(target_ms)
    samples = int(lead_s * 24_000)
    lead.made(samples + 2400)
    lead.sent(samples + 2400, now)
    lead.report(2400, True, now)
    return lead


def prefill(plan: Scheduler, now: float = 0.0) -> Plan:
    """Ask for a plan and prefill what it plans."""
    planned = plan.plan(now)
    for job in planned.prefills:
        plan.prefilled(job)
    return planned


def step(plan: Scheduler, planned: Plan, now: float = 0.0) -> None:
    for job in planned.steps:
        plan.stepped(job, now)


# --- admission ---


def test_a_new_call_is_prefilled_and_stepped_in_one_plan() -> None:
    turns = scheduler()
    turns.admit("a", PlayoutLead(), 0.0)
    assert turns.next_wake(0.0) == 0.0
    assert prefill(turns) == Plan(prefills=("a",), steps=("a",))
    assert turns.active == 1


def test_a_full_arena_queues_up_to_its_bound_and_then_refuses() -> None:
    turns = scheduler(slots=2, max_waiting=1)
    for job in "ab":
        turns.admit(job, PlayoutLead(), 0.0)
    prefill(turns)
    turns.admit("c", PlayoutLead(), 0.0)
    with pytest.raises(ServerBusy) as caught:
        turns.admit("d", PlayoutLead(), 0.0)
    assert caught.value.retryable
    assert "2 slots" in caught.value.message
    assert caught.value.remedy
    assert turns.waiting == 1


def test_slots_that_are_free_do_not_count_as_a_queue() -> None:
    turns = scheduler(slots=2, max_waiting=0)
    turns.admit("a", PlayoutLead(), 0.0)
    turns.admit("b", PlayoutLead(), 0.0)
    with pytest.raises(ServerBusy):
        turns.admit("c", PlayoutLead(), 0.0)


def test_the_next_clause_of_a_call_is_let_in_where_a_new_call_is_refused() -> None:
    turns = scheduler(slots=1, max_waiting=0)
    turns.admit("a", PlayoutLead(), 0.0)
    turns.admit("clause", ahead(0.3), 0.0)
    with pytest.raises(ServerBusy):
        turns.admit("new", PlayoutLead(), 0.0)
    with pytest.raises(ServerBusy):
        turns.admit("another clause", ahead(0.3), 0.0)


def test_a_job_is_admitted_once() -> None:
    turns = scheduler()
    turns.admit("a", PlayoutLead(), 0.0)
    with pytest.raises(ValueError, match="already"):
        turns.admit("a", PlayoutLead(), 0.0)


def test_a_slot_that_becomes_free_goes_to_the_next_at_once() -> None:
    turns = scheduler(slots=1)
    for job in "abc":
        turns.admit(job, PlayoutLead(), 0.0)
    assert prefill(turns).prefills == ("a",)
    assert prefill(turns).prefills == ()
    turns.remove("a")
    assert prefill(turns).prefills == ("b",)


def test_who_hears_nothing_joins_in_the_order_of_the_silence_then_who_has_least() -> None:
    turns = scheduler(max_prefills=2)
    turns.admit("much", ahead(0.5), 0.0)
    turns.admit("little", ahead(0.2), 0.0)
    turns.admit("first", PlayoutLead(), 0.0)
    turns.admit("second", PlayoutLead(), 0.1)
    assert prefill(turns, 0.1).prefills == ("first", "second")
    assert prefill(turns, 0.1).prefills == ("little", "much")


def test_a_call_that_ran_dry_in_the_queue_is_not_passed_by_new_calls_for_ever() -> None:
    turns = scheduler(slots=1)
    turns.admit("speaks", PlayoutLead(), 0.0)
    prefill(turns)
    turns.admit("dry", ahead(0.05), 0.0)
    turns.plan(0.0)
    for index in range(5):
        turns.admit(index, PlayoutLead(), 0.5 + index)
    turns.remove("speaks")
    assert turns.plan(6.0).prefills == (0,), "it was silent before"
    turns = scheduler(slots=1)
    turns.admit("dry", ahead(0.05), 0.0)
    turns.admit("speaks", PlayoutLead(), 0.0)
    assert prefill(turns).prefills == ("speaks",)
    turns.remove("speaks")
    prefill(turns, 0.0)
    assert turns.active == 1


# --- who steps ---


def test_first_frames_come_first_then_the_least_lead() -> None:
    turns = scheduler()
    turns.admit("much", ahead(0.4), 0.0)
    turns.admit("little", ahead(0.1), 0.0)
    turns.admit("new", PlayoutLead(), 0.0)
    assert prefill(turns).steps == ("new", "little", "much")


def test_a_row_with_more_than_its_lead_ahead_rests_and_others_do_not() -> None:
    turns = scheduler(lead_ms=500)
    turns.admit("far", ahead(0.6), 0.0)
    turns.admit("own target", ahead(0.6, target_ms=1000), 0.0)
    assert prefill(turns).steps == ("own target",)


def test_a_row_that_rests_says_when_it_must_go_on() -> None:
    turns = scheduler(lead_ms=500, rest_ms=200)
    turns.admit("far", ahead(0.6), 0.0)
    assert prefill(turns).prefills == ("far",)
    assert turns.next_wake(0.0) == pytest.approx(0.3)
    assert not turns.plan(0.29)
    assert turns.plan(0.3).steps == ("far",)


def test_a_listener_whose_sound_is_late_does_not_keep_the_engine_awake() -> None:
    turns = scheduler(lead_ms=500, rest_ms=200)
    lead = ahead(0.2)
    # Made, but stuck on its way: the listener has played all that it was given.
    lead.made(24_000 * 3 // 10 + 1)
    turns.admit("stuck", lead, 10.0)
    prefill(turns, 10.0)
    now, wakes = 10.0, 0
    while now < 11.0:
        assert not turns.plan(now)
        wake = turns.next_wake(now)
        assert wake is not None
        now, wakes = wake, wakes + 1
    assert wakes <= 500


def test_a_row_below_its_lead_rides_along_with_one_in_need() -> None:
    turns = scheduler()
    turns.admit("well", ahead(0.7), 0.0)
    prefill(turns)
    assert not turns.plan(0.0)
    turns.admit("new", PlayoutLead(), 0.0)
    assert prefill(turns).steps == ("new", "well")


def test_rows_that_do_not_hurry_leave_the_device_free_in_between() -> None:
    turns = scheduler()
    turns.admit("a", ahead(0.4), 0.0)
    step(turns, prefill(turns))
    assert not turns.plan(0.001)
    assert turns.next_wake(0.001) == pytest.approx(FRAME_S / 4, abs=1e-5)
    assert turns.plan(FRAME_S / 4).steps == ("a",)


def test_starved_and_held_rows_skip_steps() -> None:
    turns = scheduler()
    for job in ("starved", "held", "runs"):
        turns.admit(job, PlayoutLead(), 0.0)
    turns.text("starved", False)
    turns.held("held", True)
    assert prefill(turns).steps == ("runs",)
    turns.text("starved", True)
    turns.held("held", False)
    assert set(turns.plan(0.0).steps) == {"starved", "held", "runs"}


def test_a_row_whose_ring_is_full_of_frames_that_are_no_sound_yet_waits() -> None:
    turns = scheduler()
    turns.admit("a", None, 0.0)
    steps = 0
    for _ in range(200):
        planned = prefill(turns)
        step(turns, planned)
        steps += len(planned.steps)
    assert steps == 62, "room for two that are not reported yet"
    assert turns.next_wake(0.0) is None
    turns.decoded("a", 1, 0.0)
    assert turns.plan(0.0).steps == ("a",)


def test_a_cancelled_row_is_gone_at_the_next_plan_and_late_news_of_it_are_nothing() -> None:
    turns = scheduler()
    turns.admit("a", PlayoutLead(), 0.0)
    turns.admit("waits", PlayoutLead(), 0.0)
    step(turns, prefill(turns))
    turns.remove("a")
    turns.remove("waits")
    for tell in (turns.prefilled, turns.ended, turns.remove):
        tell("a")
    turns.stepped("a", 0.0)
    turns.decoded("a", 1, 0.0)
    turns.text("a", True)
    turns.held("a", True)
    assert not turns.plan(0.0)
    assert turns.next_wake(0.0) is None
    assert not turns.finished("a")


def test_where_not_all_rows_can_step_they_take_turns() -> None:
    turns = scheduler(max_rows=2, ramp=(8,))
    for job in range(5):
        turns.admit(job, PlayoutLead(), 0.0)
    counts: dict[Any, int] = dict.fromkeys(range(5), 0)
    for _ in range(10):
        planned = prefill(turns)
        step(turns, planned)
        for stepped in planned.steps:
            counts[stepped] += 1
    assert set(counts.values()) == {4}


# --- chunks ---


def chunks(frames: int, **fields: Any) -> list[int]:
    """Of a call on a device much faster than real time."""
    call = Call(0, frames, 0.0)
    Simulation(scheduler(**fields)).run([call])
    return call.chunks


def test_chunks_grow_along_the_ramp_to_what_the_lead_can_cover() -> None:
    assert chunks(40, lead_ms=2000) == [1, 2, 4, 8, 8, 8, 8, 1]
    assert chunks(40, lead_ms=800)[:6] == [1, 2, 4, 4, 4, 4]
    assert set(chunks(40, lead_ms=160)) == {1}


def test_on_a_device_hardly_faster_than_real_time_chunks_stay_small() -> None:
    call = Call(0, 60, 0.0)
    Simulation(scheduler(), Costs(step_s=0.07, decode_s=0.004)).run([call])
    assert set(call.chunks[:10]) == {1}
    assert not call.gaps


def test_the_last_frames_are_decoded_whatever_their_number() -> None:
    turns = scheduler(ramp=(1, 2, 4, 8), initial_codec_chunk_frames=8)
    turns.admit("a", PlayoutLead(), 0.0)
    prefill(turns)
    turns.stepped("a", 0.0, frames=7)
    turns.ended("a")
    taken = []
    for _ in range(3):
        ((_, frames),) = turns.plan(0.0).decodes
        taken.append(frames)
        assert not turns.finished("a")
        turns.decoded("a", frames, 0.0)
    assert taken == [4, 2, 1]
    assert turns.finished("a")


def test_frames_beyond_the_end_are_dropped_and_those_told_of_late_are_not() -> None:
    turns = scheduler()
    turns.admit("a", PlayoutLead(), 0.0)
    prefill(turns)
    turns.stepped("a", 0.0, frames=3)
    turns.ended("a", frames=2)
    turns.stepped("a", 0.0)
    assert turns.plan(0.0).decodes == (("a", 2),)
    turns.admit("b", PlayoutLead(), 0.0)
    prefill(turns)
    turns.stepped("b", 0.0)
    turns.ended("b")
    turns.stepped("b", 0.0)
    assert turns.plan(0.0).decodes == (("b", 2),)


def test_a_decode_is_named_once() -> None:
    turns = scheduler()
    turns.admit("a", PlayoutLead(), 0.0)
    prefill(turns)
    turns.stepped("a", 0.0)
    assert turns.decodes_now(0.0) == (("a", 1),)
    assert turns.plan(0.0).decodes == ()
    assert turns.taken("a") == 1
    with pytest.raises(ValueError, match="2 frames arrived where 1 were taken"):
        turns.decoded("a", 2, 0.0)


def test_a_row_without_text_gives_what_it_has() -> None:
    turns = scheduler(initial_codec_chunk_frames=4)
    turns.admit("a", PlayoutLead(), 0.0)
    step(turns, prefill(turns))
    assert not turns.plan(0.0).decodes
    turns.text("a", False)
    assert turns.plan(0.0).decodes == (("a", 1),)


def test_a_row_whose_listener_is_about_to_run_dry_gives_what_it_has() -> None:
    turns = scheduler()
    turns.admit("a", ahead(0.64), 0.0)
    prefill(turns)
    turns.stepped("a", 0.0, frames=3)
    assert not turns.plan(0.0).decodes, "four may gather"
    turns.text("a", False)
    wake = turns.next_wake(0.0)
    assert wake == pytest.approx(0.44)
    assert wake is not None
    assert turns.plan(wake).decodes == (("a", 2),)


def test_a_whole_chunk_waits_a_moment_while_a_new_call_is_about_to_sound() -> None:
    turns = scheduler()
    turns.admit("a", ahead(0.7), 0.0)
    prefill(turns)
    turns.stepped("a", 0.0, frames=4)
    turns.admit("new", PlayoutLead(), 0.0)
    planned = prefill(turns)
    assert planned.decodes == (("a", 4),), "nothing of the new call is there yet"
    turns.decoded("a", 4, 0.0)
    turns.stepped("a", 0.0, frames=8)
    assert turns.plan(0.0).decodes == ()
    assert turns.plan(0.11).decodes == (("a", 4),), "but not long"


def test_a_new_calls_first_frame_is_decoded_before_what_is_due() -> None:
    turns = scheduler(max_decode_frames=2)
    turns.admit("a", ahead(0.01), 0.0)
    turns.admit("new", PlayoutLead(), 0.0)
    prefill(turns)
    turns.stepped("a", 0.0, frames=2)
    turns.stepped("new", 0.0)
    assert turns.plan(0.0).decodes == (("new", 1),), "as many as a plan may have"
    assert turns.plan(0.0).decodes == (("a", 1),)


def test_a_first_chunk_longer_than_the_lead_is_gathered_all_the_same() -> None:
    assert chunks(40, initial_codec_chunk_frames=20, lead_ms=400)[0] == 20
    call = Call(0, 60, 0.0)
    turns = scheduler()
    turns.admit(call, call.lead, 0.0, initial_chunk=100)
    prefill(turns)
    turns.stepped(call, 0.0, frames=40)
    assert turns.plan(0.0).decodes == ((call, 32),), "at most half the ring"


# --- the first chunk by load ---


@pytest.mark.parametrize(
    ("steady", "choices"),
    [(1, (1,)), (2, (1,)), (8, (1, 2, 4)), (25, (1, 2, 4, 8, 16)), (50, (1, 2, 4, 8, 16, 32))],
)
def test_the_choices_are_the_powers_of_two_below_the_steady_chunk(
    steady: int, choices: tuple[int, ...]
) -> None:
    assert powers_below(steady) == choices


def test_the_first_chunk_grows_with_the_load() -> None:
    found = [chunk_by_load(active, 12, 8) for active in range(13)]
    assert found == [1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 4]


def test_it_is_chosen_once_and_a_requests_own_value_wins() -> None:
    turns = scheduler(slots=4, initial_codec_chunk_frames="load", max_prefills=1)
    for job, own in (("a", None), ("b", None), ("c", None), ("d", 3)):
        turns.admit(job, PlayoutLead(), 0.0, initial_chunk=own)
        prefill(turns)
    for job in "abcd":
        turns.stepped(job, 0.0, frames=8)
    assert dict(turns.plan(0.0).decodes) == {"a": 1, "b": 1, "c": 2, "d": 3}


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(1, 40)), min_size=1, max_size=12))
@settings(deadline=None, derandomize=True)
def test_no_frame_is_repeated_or_lost_however_the_load_moves(
    calls: list[tuple[int, int]],
) -> None:
    """The defect of a choice repeated at every chunk: frames sent twice."""
    rows = [Call(index, frames, at * 0.1) for index, (at, frames) in enumerate(calls)]
    Simulation(scheduler(slots=4, max_waiting=20, initial_codec_chunk_frames="load")).run(rows)
    for call in rows:
        assert sum(call.chunks) == call.frames == call.heard


# --- whole runs ---


@pytest.mark.parametrize("rows", [1, 8, 32, 64])
def test_a_fast_engine_gives_every_listener_sound_without_a_gap(rows: int) -> None:
    calls = [Call(index, 100, index * 0.01) for index in range(rows)]
    simulation = Simulation(scheduler())
    simulation.run(calls)
    for call in calls:
        assert call.gaps == []
        assert call.most_lead_s <= 0.8 + seconds(2)
        assert call.first_s is not None
    # Rows of all phases find together: few steps, wide ones.
    assert sum(simulation.step_rows) == rows * 100
    assert sum(simulation.step_rows) / len(simulation.step_rows) > 0.6 * rows


def test_calls_that_come_at_random_are_heard_soon_and_without_a_gap() -> None:
    source = random.Random(1)
    at = 0.0
    calls = []
    for index in range(120):
        at += source.expovariate(20)
        calls.append(Call(index, source.randint(50, 150), at))
    Simulation(scheduler(slots=256)).run(calls)
    assert not any(call.gaps for call in calls)
    firsts = sorted(call.first_s for call in calls if call.first_s is not None)
    assert len(firsts) == 120
    assert firsts[60] < 0.02
    assert firsts[114] < 0.04


def test_an_engine_that_is_too_slow_shares_itself_fairly() -> None:
    """Three times too slow: all wait about equally, none for ever."""
    calls = [Call(index, 40, 0.0) for index in range(6)]
    costs = Costs(step_s=0.04, step_row_s=0.02, decode_s=0.02, decode_frame_s=0.02)
    Simulation(scheduler(), costs).run(calls)
    waited = [sum(call.gaps) for call in calls]
    assert min(waited) > 0
    assert max(waited) < 1.3 * min(waited)
    assert all(set(call.chunks) == {1} for call in calls)


def test_text_that_comes_as_it_is_spoken_makes_no_gap() -> None:
    """Twice as fast as the engine needs it for the listener, 25 tokens a second."""
    calls = [
        Call(index, 60, 0.0, text=lambda frame, now: frame < 2 + 25 * now) for index in range(4)
    ]
    Simulation(scheduler()).run(calls)
    assert not any(call.gaps for call in calls)


def test_a_job_without_a_listener_is_never_paced_and_comes_last() -> None:
    batch = Call(0, 200, 0.0, paces=False)
    live = [Call(index, 50, 0.5) for index in range(1, 4)]
    Simulation(scheduler()).run([batch, *live])
    assert batch.done_s is not None
    assert batch.done_s < 2
    assert not any(call.gaps for call in live)
    assert batch.chunks[:4] == [1, 2, 4, 8]


# --- settings and estimates ---


@pytest.mark.parametrize(
    "fields",
    [
        {"slots": 0},
        {"max_prefills": 0},
        {"max_decode_frames": 0},
        {"max_waiting": -1},
        {"lead_ms": -1},
        {"ramp": ()},
        {"ramp": (0, 1)},
        {"ramp": (2, 1)},
        {"ramp": (1, 1)},
        {"ring": 15},
        {"max_rows": 0},
        {"initial_codec_chunk_frames": 0},
    ],
)
def test_settings_out_of_range_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        SchedulerSettings(**fields)


def test_the_estimates_rise_at_once_and_fall_slowly() -> None:
    times = TurnTimes()
    times.turn(0.0)
    assert times.latency_s == 0
    times.began(1.0)
    times.turn(1.01)
    times.decoded(0.02)
    assert times.latency_s == pytest.approx(0.03)
    times.decoded(0.04)
    assert times.decode_s == pytest.approx(0.03)
    times.decoded(0.02)
    assert times.decode_s == pytest.approx(0.029)
    times.began(2.0)
    times.turn(2.0)
    assert times.turn_s == pytest.approx(0.01), "the same turn"
    times.turn(9.0)
    assert times.turn_s == pytest.approx(0.01 + (LONGEST_S - 0.01) / 2), "a stall is not a turn"


def test_frames_are_counted_in_samples_of_the_engine() -> None:
    assert seconds(1) == FRAME_S
    assert FRAME_SAMPLES == 1920
