"""Slots that the sender does not send, for which the core keeps its frames and the grid."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_pacer import Kind, PacerError
from qwen3tts_pacer.core import PacerCore
from tests.pacer.playing import PTIME, SILENCE, At, frames, payloads, play, sender_core


def test_a_passed_slot_keeps_the_queue_and_what_follows_is_marked_and_faded_in() -> None:
    pacer = sender_core()
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 5), 0.0)
    play(pacer, PTIME)
    pacer.pass_slot(2 * PTIME)
    pacer.pass_slot(3 * PTIME)
    slot = pacer.due(4 * PTIME)
    assert slot is not None
    assert (slot.payload, slot.marker, slot.ticks, slot.missed) == (b"1/2 head", True, 3, 0)
    assert pacer.skipped_slots == 0


def test_slots_passed_in_an_underrun_are_none_of_its_length() -> None:
    pacer = sender_core()
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 1), 0.0)
    play(pacer, 2 * PTIME)  # speech, fade, silence
    pacer.pass_slot(3 * PTIME)
    pacer.push(frames(1, 1, 2), 3.5 * PTIME)
    slot = pacer.due(4 * PTIME)
    assert slot is not None
    assert (slot.payload, slot.missed) == (b"1/1 head", 2)
    assert (pacer.starvations, pacer.starved_slots) == (1, 2)


def test_lateness_in_mid_utterance_is_missed_speech() -> None:
    pacer = sender_core()
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 5), 0.0)
    play(pacer, 0.0)
    slot = pacer.due(4 * PTIME)
    assert slot is not None
    assert (slot.payload, slot.missed) == (b"1/1 head", 3)


@pytest.mark.parametrize("finished", [False, True])
def test_the_fade_of_an_interruption_goes_before_what_is_said_next(finished: bool) -> None:
    pacer = sender_core()
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 5), 0.0)
    play(pacer, PTIME)
    pacer.interrupt(PTIME)
    pacer.begin(2, PTIME)
    pacer.push(frames(2, 0, 2), PTIME)
    if finished:
        pacer.finish(2, PTIME)
    assert payloads(play(pacer, 4 * PTIME))[:3] == ["1/1 tail", "2/0 speech", "2/1 speech"]


def test_a_pause_begins_with_the_fade_and_keeps_what_waits() -> None:
    pacer = sender_core()
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 3), 0.0)
    assert pacer.fade(0.0) is None  # nothing was sent
    play(pacer, PTIME)
    fade = pacer.fade(2 * PTIME)
    assert fade is not None
    assert (fade.kind, fade.payload, fade.marker) == (Kind.FADE, b"1/1 tail", False)
    assert pacer.fade(3 * PTIME) is None
    assert pacer.queued == 1


def test_a_slot_fetched_ahead_is_the_one_that_is_due_and_can_be_taken_back() -> None:
    pacer, other = sender_core(), sender_core()
    for each in (pacer, other):
        each.begin(1, 0.0)
        each.push(frames(1, 0, 6), 0.0)
        play(each, 0.0)
    first = frames(1, 0, 1)[0]
    for _ in range(2):
        ahead = pacer.due_ahead(PTIME)
        assert ahead is not None
        assert ahead.payload == b"1/1 speech"
        assert (pacer.queued, pacer.sent_frames) == (4, 2)
        pacer.take_back(first)
        assert (pacer.queued, pacer.sent_frames) == (5, 1)
    assert payloads(play(pacer, 1.0)) == payloads(play(other, 1.0))
    assert pacer.sent_frames == other.sent_frames


def test_no_slot_is_fetched_ahead_that_may_change() -> None:
    pacer = sender_core()
    pacer.begin(1, 0.0)
    pacer.push(frames(1, 0, 2), 0.0)
    assert pacer.due_ahead(0.0) is None  # it has not begun
    play(pacer, 0.0)
    assert pacer.due_ahead(PTIME) is None  # the last of what waits: more may come, or its end
    with pytest.raises(PacerError, match="take back"):
        sender_core().take_back(frames(1, 0, 1)[0])


@settings(max_examples=200)
@given(st.lists(st.integers(0, 8), max_size=6), st.booleans(), st.booleans())
def test_silence_that_is_repeated_leaves_the_core_as_if_each_slot_had_been_asked_for(
    pauses: list[int], cut_off: bool, passed: bool
) -> None:
    pacer, other = sender_core(), sender_core()
    place = 0
    for context, pause in enumerate(pauses):
        for _ in range(pause):
            asked = other.due(place * PTIME)
            ahead = pacer.silence_ahead()
            if ahead is None:
                ahead = pacer.due(place * PTIME)
            else:
                pacer.repeated(1)
            assert repr(ahead) == repr(asked)
            assert ahead is not None
            assert asked is not None
            assert ahead.payload == asked.payload
            place += 1
        for each in (pacer, other):
            each.begin(context, place * PTIME)
            each.push(frames(context, 0, 2), place * PTIME)
            if cut_off:
                each.due(place * PTIME)
                each.interrupt(place * PTIME)
            else:
                each.finish(context, place * PTIME)
            if passed:
                each.pass_slot((place + 1) * PTIME)
        place += 1 + passed
    assert pacer.next_deadline() == other.next_deadline()
    assert payloads(play(pacer, place * PTIME + 1)) == payloads(play(other, place * PTIME + 1))
    assert pacer.sent_silence == other.sent_silence
    assert pacer.skipped_slots == other.skipped_slots


def test_silence_is_repeated_as_often_as_it_was_sent() -> None:
    pacer = sender_core()
    assert payloads(play(pacer, 0.0)) == [SILENCE.decode()]
    slot = pacer.silence_ahead()
    assert slot is not None
    assert (slot.payload, slot.marker, slot.ticks) == (SILENCE, False, 1)
    pacer.repeated(9)
    assert pacer.sent_silence == 10
    assert pacer.next_deadline() == pytest.approx(10 * PTIME)
    assert pacer.due(9.5 * PTIME) is None


def test_no_silence_is_granted_that_may_change() -> None:
    pacer = sender_core()
    assert pacer.silence_ahead() is None  # the first slot is no advance of the timestamp
    play(pacer, 0.0)
    pacer.mark()
    assert pacer.silence_ahead() is None
    pacer.pass_slot(PTIME)
    assert pacer.silence_ahead() is None  # the next slot has the marker
    play(pacer, 2 * PTIME)
    assert pacer.silence_ahead() is not None
    pacer.begin(1, 2 * PTIME)
    pacer.push(frames(1, 0, 1), 2 * PTIME)
    assert pacer.silence_ahead() is None
    play(pacer, 3 * PTIME)
    pacer.finish(1, 3 * PTIME)
    assert pacer.silence_ahead() is None  # the fade is next
    play(pacer, 4 * PTIME)
    pacer.set_continuous(False, 5 * PTIME)
    assert pacer.silence_ahead() is None


def test_silence_between_utterances_begins_and_ends_by_agreement() -> None:
    pacer = sender_core()
    assert payloads(play(pacer, PTIME)) == [SILENCE.decode()] * 2
    pacer.set_continuous(False, 2 * PTIME)
    assert pacer.due(2 * PTIME) is None
    pacer.set_continuous(True, 3 * PTIME)
    slot = pacer.due(3 * PTIME)
    assert slot is not None
    assert (slot.payload, slot.marker) == (SILENCE, True)
    pacer.mark()
    slot = pacer.due(4 * PTIME)
    assert slot is not None
    assert slot.marker


def late_core(late_s: float) -> PacerCore:
    made = PacerCore(PTIME, At(), silence=SILENCE, late_s=late_s)
    made.start(0.0)
    made.begin(1, 0.0)
    made.push(frames(1, 0, 50), 0.0)
    return made


def test_a_slot_within_the_bound_is_sent_late_and_caught_up_with() -> None:
    pacer = late_core(0.1)
    now, sent = 0.09, list[float]()
    while len(sent) < 12:
        slot = pacer.due(now)
        assert slot is not None
        assert slot.deadline == pytest.approx(len(sent) * PTIME)
        sent.append(now)
        due = pacer.next_deadline()
        assert due is not None
        now = max(now, due)
    assert pacer.skipped_slots == 0
    # Two in the time of one until it is on its grid again.
    gaps = [round((b - a) * 1000) for a, b in pairwise(sent)]
    assert min(gaps) == 10
    assert gaps[-1] == 20
    assert sent[-1] == pytest.approx(11 * PTIME)


def test_beyond_the_bound_the_places_are_skipped() -> None:
    pacer = late_core(0.1)
    pacer.due(0.0)
    slot = pacer.due(0.15)
    assert slot is not None
    assert (slot.ticks, pacer.skipped_slots) == (7, 6)


def test_without_a_bound_a_whole_slot_late_is_skipped_as_ever() -> None:
    pacer = late_core(0.0)
    pacer.due(0.0)
    slot = pacer.due(0.045)
    assert slot is not None
    assert (slot.ticks, pacer.skipped_slots) == (2, 1)


def test_a_bound_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="late_s=2"):
        late_core(2.0)
