from __future__ import annotations

import itertools

import pytest

from qwen3tts_pacer.core import PacerCore
from qwen3tts_pacer.slot import Kind
from qwen3tts_pacer.states import (
    TRANSITIONS,
    ContextError,
    IllegalMove,
    Move,
    PacerError,
    PacerFull,
    State,
)
from tests.pacer.playing import (
    PTIME,
    SAMPLES,
    SILENCE,
    At,
    core,
    dropped,
    frames,
    payloads,
    play,
    spoken,
    state,
)

ILLEGAL = [pair for pair in itertools.product(State, Move) if pair not in TRANSITIONS]


@pytest.mark.parametrize(("before", "move"), ILLEGAL, ids=lambda each: each.value)
def test_what_the_table_lacks_is_an_error_and_changes_nothing(before: State, move: Move) -> None:
    pacer = core()
    pacer._state = before
    with pytest.raises(IllegalMove, match=f"{move.value} while {before.value}"):
        pacer._move(move)
    assert pacer.state is before


def test_every_state_can_be_reached_and_left() -> None:
    assert {state for state, _ in TRANSITIONS} == set(State)
    assert set(TRANSITIONS.values()) == set(State)


def test_silence_flows_from_the_start_when_sending_is_continuous() -> None:
    slots = play(core(), 0.1)
    assert [slot.deadline for slot in slots] == pytest.approx([0, 0.02, 0.04, 0.06, 0.08, 0.1])
    assert {slot.payload for slot in slots} == {SILENCE}
    assert [slot.ticks for slot in slots] == [0, 1, 1, 1, 1, 1]


def test_an_unbroken_stream_never_has_the_marker() -> None:
    pacer = core()
    slots = play(pacer, 0.05)
    pacer.begin(1, 0.05)
    pacer.push(frames(1, 0, 4), 0.05)
    pacer.finish(1, 0.05)
    slots += play(pacer, 0.3)
    assert len(spoken(slots)) == 4
    assert not any(slot.marker for slot in slots)


def test_an_utterance_ends_with_its_tail_and_then_silence() -> None:
    pacer = core()
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 2), 0.0)
    pacer.finish(1, 0.0)
    slots = play(pacer, 0.06)
    assert payloads(slots) == ["1/0 speech", "1/1 speech", "1/1 tail", "silence"]
    assert [slot.kind for slot in slots[2:]] == [Kind.FADE, Kind.SILENCE]
    assert state(pacer) is State.IDLE
    assert list(pacer.drained) == [1]


def test_an_utterance_shorter_than_the_prebuffer_plays_when_it_is_finished() -> None:
    pacer = core(start=10.0)
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 1), 0.0)
    assert spoken(play(pacer, 0.1)) == []
    assert state(pacer) is State.FILLING
    pacer.finish(1, 0.1)
    assert state(pacer) is State.DRAINING
    assert spoken(play(pacer, 0.2)) == ["1/0"]


def test_an_utterance_without_a_frame_ends_at_once() -> None:
    pacer = core()
    pacer.begin(1, 0.0)
    pacer.finish(1, 0.0)
    assert state(pacer) is State.IDLE
    assert list(pacer.drained) == [1]


def test_filling_waits_for_the_policy() -> None:
    pacer = core(start=0.05)
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 9), 0.0)
    slots = play(pacer, 0.1)
    assert payloads(slots)[:4] == ["silence", "silence", "silence", "1/0 speech"]
    assert state(pacer) is State.PLAYING


def test_running_dry_fades_out_keeps_time_and_fades_in() -> None:
    pacer = core()
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 2), 0.0)
    slots = play(pacer, 0.08)
    assert state(pacer) is State.STARVED
    pacer.push(frames(1, 2, 2), 0.09)
    slots += play(pacer, 0.12)
    assert payloads(slots) == [
        "1/0 speech",
        "1/1 speech",
        "1/1 tail",
        "silence",
        "silence",
        "1/2 head",
        "1/3 speech",
    ]
    assert [slot.ticks for slot in slots] == [0, 1, 1, 1, 1, 1, 1]
    assert (pacer.starvations, pacer.starved_slots) == (1, 3)


def test_a_dry_queue_that_only_the_finish_follows_was_no_starvation() -> None:
    pacer = core()
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 1), 0.0)
    play(pacer, 0.06)
    assert state(pacer) is State.STARVED
    pacer.finish(1, 0.07)
    assert state(pacer) is State.IDLE
    assert pacer.starvations == 0


def test_resuming_waits_for_the_policy() -> None:
    pacer = core(resume=0.05)
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 1), 0.0)
    play(pacer, 0.06)
    pacer.push(frames(1, 1, 2), 0.07)
    assert spoken(play(pacer, 0.11)) == []
    assert spoken(play(pacer, 0.13)) == ["1/1"]


def test_frames_without_variants_fall_back_to_silence_and_the_payload() -> None:
    pacer = core()
    pacer.begin(1, 0.0)
    bare = [frame._replace(tail=None, head=None) for frame in frames(1, 0, 2)]
    pacer.push(bare[:1], 0.0)
    slots = play(pacer, 0.03)
    pacer.push(bare[1:], 0.03)
    slots += play(pacer, 0.05)
    assert payloads(slots) == ["1/0 speech", "silence", "1/1 speech"]


def test_the_next_utterance_follows_without_a_gap() -> None:
    pacer = core()
    pacer.begin(1, 0.0)
    pacer.begin(2, 0.0)
    pacer.push(frames(1, 0, 2), 0.0)
    pacer.finish(1, 0.0)
    pacer.push(frames(2, 0, 2), 0.01)
    assert state(pacer) is State.PLAYING
    pacer.finish(2, 0.01)
    slots = play(pacer, 0.1)
    assert payloads(slots)[:5] == [
        "1/0 speech",
        "1/1 speech",
        "2/0 speech",
        "2/1 speech",
        "2/1 tail",
    ]
    assert list(pacer.drained) == [1, 2]


def test_the_next_utterance_is_kept_back_where_its_start_is_not_safe() -> None:
    pacer = core(start=0.1)
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 2), 0.0)
    pacer.finish(1, 0.0)
    pacer.begin(2, 0.0)
    pacer.push(frames(2, 0, 2), 0.01)
    slots = play(pacer, 0.12)
    assert payloads(slots)[:4] == ["1/0 speech", "1/1 speech", "1/1 tail", "silence"]
    assert slots[-1].payload == b"2/0 speech"
    assert slots[-1].deadline == pytest.approx(0.12)


def test_frames_of_a_later_context_end_the_turn_of_the_one_before() -> None:
    pacer = core(start=5.0)
    pacer.begin(1, 0.0)
    pacer.begin(2, 0.0)
    pacer.push([*frames(1, 0, 1), *frames(2, 0, 1)], 0.0)
    with pytest.raises(ContextError, match="context 1"):
        pacer.push(frames(1, 1, 1), 0.0)
    pacer.finish(1, 0.0)
    pacer.finish(2, 0.0)
    assert spoken(play(pacer, 0.1)) == ["1/0", "2/0"]


def test_a_starved_context_gives_way_to_the_one_behind_it() -> None:
    pacer = core()
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 1), 0.0)
    play(pacer, 0.05)
    pacer.begin(2, 0.05)
    pacer.push(frames(2, 0, 1), 0.05)
    assert payloads(play(pacer, 0.06)) == ["2/0 speech"]
    assert list(pacer.drained) == [1]
    assert pacer.starvations == 0


@pytest.mark.parametrize("late", [0.0, 0.005, 0.019])
def test_a_little_late_is_sent_late(late: float) -> None:
    pacer = core()
    slot = pacer.due(late)
    assert slot is not None
    assert (slot.ticks, slot.deadline) == (0, 0.0)
    assert pacer.skipped_slots == 0


def test_a_slot_sent_late_pushes_the_next_one_off() -> None:
    pacer = core()
    assert pacer.due(0.019) is not None
    assert pacer.due(0.0285) is None
    assert pacer.next_deadline() == pytest.approx(0.029)
    assert pacer.due(0.029) is not None
    assert pacer.next_deadline() == pytest.approx(0.04)


def test_a_short_hold_brings_no_two_slots_closer() -> None:
    pacer = core()
    assert pacer.due(0.016) is not None
    pacer.hold(0.017)
    pacer.resume(0.018)
    assert pacer.next_deadline() == pytest.approx(0.026)


@pytest.mark.parametrize("stall", [0.021, 0.5, 3600.0, 86400.0 * 30])
def test_after_a_stall_one_slot_is_sent_and_the_rest_skipped(stall: float) -> None:
    pacer = core()
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 4), 0.0)
    pacer.finish(1, 0.0)
    assert pacer.due(0.0) is not None
    now = 0.02 + stall
    slot = pacer.due(now)
    assert slot is not None
    assert pacer.due(now) is None
    assert slot.payload == b"1/1 head"
    assert slot.marker
    assert 0 <= now - slot.deadline < PTIME
    assert slot.ticks == round(slot.deadline / PTIME)
    assert pacer.skipped_slots == slot.ticks - 1
    assert spoken(play(pacer, now + 1.0, now)) == ["1/2", "1/3"]


def test_the_grid_does_not_drift() -> None:
    pacer = PacerCore(PTIME, At(), silence=SILENCE)
    pacer.start(0.0, origin=1000.0)
    slot = None
    for n in range(200_000):
        slot = pacer.due(1000.0 + n * PTIME + 0.001)
        assert slot is not None
    assert slot is not None
    assert slot.deadline == 1000.0 + 199_999 * PTIME


def test_nothing_is_sent_in_silence_when_sending_is_not_continuous() -> None:
    pacer = core(continuous=False)
    assert pacer.next_deadline() is None
    assert pacer.due(1.0) is None
    pacer.begin(1, 1.005)
    pacer.push(frames(1, 0, 2), 1.005)
    pacer.finish(1, 1.005)
    slots = play(pacer, 2.0)
    assert payloads(slots) == ["1/0 speech", "1/1 speech", "1/1 tail"]
    assert [slot.marker for slot in slots] == [True, False, False]
    assert [slot.deadline for slot in slots] == pytest.approx([1.02, 1.04, 1.06])
    assert pacer.next_deadline() is None
    pacer.begin(2, 1.5)
    pacer.push(frames(2, 0, 1), 1.5)
    pacer.finish(2, 1.5)
    slots = play(pacer, 2.0)
    assert [slot.marker for slot in slots] == [True, False]
    assert [slot.ticks for slot in slots] == [22, 1]
    assert pacer.skipped_slots == 0


def test_a_talkspurt_that_follows_in_the_next_slot_has_no_marker() -> None:
    pacer = core(continuous=False)
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 1), 0.0)
    pacer.finish(1, 0.0)
    slots = play(pacer, 0.02)
    pacer.begin(2, 0.03)
    pacer.push(frames(2, 0, 1), 0.03)
    slots += play(pacer, 0.04)
    assert payloads(slots) == ["1/0 speech", "1/0 tail", "2/0 speech"]
    assert [slot.marker for slot in slots] == [True, False, False]


def test_a_starved_stretch_is_not_sent_when_sending_is_not_continuous() -> None:
    pacer = core(continuous=False)
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 1), 0.0)
    slots = play(pacer, 0.1)
    pacer.push(frames(1, 1, 1), 0.11)
    slots += play(pacer, 0.2)
    assert payloads(slots) == ["1/0 speech", "1/0 tail", "1/1 head", "1/1 tail"]
    assert [slot.ticks for slot in slots] == [0, 1, 5, 1]
    assert slots[2].marker


def test_filling_is_asked_again_at_the_policys_time_when_nothing_is_sent() -> None:
    pacer = core(continuous=False, start=0.05)
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 1), 0.0)
    assert pacer.next_deadline() == pytest.approx(0.06)
    pacer.finish(1, 0.01)
    assert pacer.next_deadline() == pytest.approx(0.02)


def test_a_rephased_talkspurt_starts_at_once_and_time_never_gains() -> None:
    pacer = core(continuous=False, rephase=True)
    total = 0
    for context, now in ((1, 0.0), (2, 1.005), (3, 2.019), (4, 3.001)):
        pacer.begin(context, now)
        pacer.push(frames(context, 0, 1), now)
        pacer.finish(context, now)
        first, fade = play(pacer, now + 0.5, now)
        total += first.ticks
        assert first.deadline == pytest.approx(now)
        assert 0.0 <= now - total * PTIME < PTIME + 1e-9
        total += fade.ticks


def test_an_interruption_leaves_one_fade() -> None:
    pacer = core()
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 9), 0.0)
    play(pacer, 0.04)
    dropped({1: (6, 3 * SAMPLES)}, pacer, 0.05)
    assert state(pacer) is State.IDLE
    slots = play(pacer, 0.1)
    assert payloads(slots) == ["1/2 tail", "silence", "silence"]
    assert slots[0].kind is Kind.FADE


def test_an_interruption_while_nothing_sounds_leaves_silence() -> None:
    pacer = core(start=1.0)
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 2, last=100), 0.0)
    play(pacer, 0.02)
    got = pacer.interrupt(0.03)
    assert got.contexts == ((1, 2, SAMPLES + 100, 0),)
    assert set(payloads(play(pacer, 0.1))) == {"silence"}


def test_no_fade_follows_a_break_in_the_sending() -> None:
    pacer = core()
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 9), 0.0)
    pacer.due(0.0)
    pacer.interrupt(0.5)
    slot = pacer.due(0.5)
    assert slot is not None
    assert slot.kind is Kind.SILENCE


def test_frames_of_an_interrupted_context_are_refused() -> None:
    pacer = core()
    pacer.begin(3, 0.0)
    pacer.push(frames(3, 0, 1), 0.0)
    pacer.interrupt(0.0)
    assert pacer.push(frames(3, 1, 2), 0.0) == 0
    assert pacer.refused_frames == 2
    pacer.finish(3, 0.0)
    assert not pacer.begin(3, 0.0)
    assert not pacer.begin(2, 0.0)
    assert state(pacer) is State.IDLE
    assert pacer.begin(4, 0.0)


def test_an_interruption_may_reach_contexts_that_are_yet_to_be_seen() -> None:
    pacer = core()
    pacer.interrupt(0.0, through=7)
    assert not pacer.begin(7, 0.0)
    assert pacer.push(frames(7, 0, 1), 0.0) == 0
    assert pacer.begin(8, 0.0)


def test_an_interruption_names_every_context_under_way() -> None:
    pacer = core()
    for context in (1, 2, 3):
        pacer.begin(context, 0.0)
    pacer.push([*frames(1, 0, 2), *frames(2, 0, 3)], 0.0)
    play(pacer, 0.0)
    dropped({1: (1, SAMPLES), 2: (3, 0), 3: (0, 0)}, pacer, 0.01)


def test_hold_sends_nothing_and_keeps_the_queue() -> None:
    pacer = core()
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 3), 0.0)
    play(pacer, 0.0)
    pacer.hold(0.01)
    assert pacer.next_deadline() is None
    assert pacer.due(0.5) is None
    pacer.push(frames(1, 3, 1), 0.5)
    pacer.finish(1, 0.5)
    assert state(pacer) is State.HELD
    pacer.resume(1.005)
    slots = play(pacer, 1.1)
    assert payloads(slots)[:2] == ["1/1 head", "1/2 speech"]
    assert (slots[0].marker, slots[0].ticks) == (True, 51)
    assert spoken(slots) == ["1/1", "1/2", "1/3"]


def test_an_interruption_on_hold_stays_on_hold() -> None:
    pacer = core(continuous=False)
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 3), 0.0)
    pacer.hold(0.0)
    pacer.interrupt(0.1)
    assert state(pacer) is State.HELD
    pacer.resume(0.2)
    assert (state(pacer), pacer.next_deadline()) == (State.IDLE, None)


def test_hold_before_the_utterance_ends_resumes_filling() -> None:
    pacer = core(continuous=False)
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 3), 0.0)
    pacer.hold(0.0)
    pacer.resume(0.1)
    assert spoken(play(pacer, 0.2)) == ["1/0", "1/1", "1/2"]


def test_a_lead_goes_out_at_once_and_no_further() -> None:
    pacer = core(continuous=False, lead_s=0.06)
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 9), 0.0)
    slots = []
    while (slot := pacer.due(0.0)) is not None:
        slots.append(slot)
    assert spoken(slots) == ["1/0", "1/1", "1/2", "1/3"]
    assert [slot.deadline for slot in slots] == pytest.approx([0.0, 0.02, 0.04, 0.06])
    assert pacer.next_deadline() == pytest.approx(0.02)


def test_a_lead_is_used_up_before_the_pacer_starves() -> None:
    pacer = core(continuous=False, lead_s=0.06)
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 4), 0.0)
    while pacer.due(0.0) is not None:
        pass
    assert pacer.due(0.03) is None
    assert state(pacer) is State.PLAYING
    pacer.push(frames(1, 4, 1), 0.07)
    slot = pacer.due(0.07)
    assert slot is not None
    assert (slot.payload, slot.ticks) == (b"1/4 speech", 1)
    assert slot.deadline == pytest.approx(0.08)
    assert play(pacer, 0.2, 0.07)[0].payload == b"1/4 tail"
    assert state(pacer) is State.STARVED


def test_the_queue_has_a_bound() -> None:
    pacer = core(capacity=3)
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 2), 0.0)
    with pytest.raises(PacerFull, match="room for 1"):
        pacer.push(frames(1, 2, 2), 0.0)
    assert (pacer.queued, pacer.room) == (2, 1)
    assert pacer.push([], 0.0) == 0


def test_a_queue_that_is_full_plays_whatever_the_policy_says() -> None:
    pacer = core(capacity=3, start=60.0)
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 3), 0.0)
    assert spoken(play(pacer, 0.0)) == ["1/0"]


def test_callers_errors_are_named() -> None:
    pacer = core()
    with pytest.raises(ContextError, match="context 1 was not begun"):
        pacer.push(frames(1, 0, 1), 0.0)
    with pytest.raises(ContextError, match="context 1 was not begun"):
        pacer.finish(1, 0.0)
    pacer.begin(1, 0.0)
    with pytest.raises(ContextError, match="numbers must rise"):
        pacer.begin(1, 0.0)
    pacer.push(frames(1, 1, 1), 0.0)
    with pytest.raises(ContextError, match="frame 1:0 after 960"):
        pacer.push(frames(1, 0, 1), 0.0)
    mixed = [*frames(1, 2, 1), *frames(7, 3, 1), *frames(1, 4, 1)]
    with pytest.raises(ContextError, match="frame 7:1440 after 1440"):
        pacer.push(mixed, 0.0)
    assert pacer.queued == 1
    pacer.finish(1, 0.0)
    with pytest.raises(ContextError, match="already finished"):
        pacer.push(frames(1, 2, 1), 0.0)
    pacer.finish(1, 0.0)
    pacer.begin(2, 0.0)
    pacer.begin(3, 0.0)
    pacer.push(frames(3, 0, 1), 0.0)
    with pytest.raises(ContextError, match="context 2"):
        pacer.push(frames(2, 0, 1), 0.0)
    pacer.finish(2, 0.0)
    with pytest.raises(PacerError, match="start"):
        pacer.start(0.0)


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="ptime_s"):
        PacerCore(20, silence=SILENCE)
    with pytest.raises(ValueError, match="capacity"):
        PacerCore(silence=SILENCE, capacity=0)
    with pytest.raises(ValueError, match="rephase"):
        PacerCore(silence=SILENCE, rephase=True)


def test_begin_opens_the_sending_where_start_was_not_called() -> None:
    pacer = PacerCore(PTIME, At(), silence=SILENCE)
    assert pacer.next_deadline() is None
    pacer.begin(1, 5.0)
    assert pacer.next_deadline() == 5.0


def test_a_slot_shows_what_matters() -> None:
    pacer = core(continuous=False)
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 1), 0.0)
    slots = play(pacer, 0.02)
    assert [repr(slot) for slot in slots] == [
        "<Slot speech 1:0-480 +0 marker at 0.000>",
        "<Slot fade +1 at 0.020>",
    ]
