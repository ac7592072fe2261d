"""The caller's sound, without holes and at one rate."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from qwen3tts_phone.audio.frames import HeardFrame
from qwen3tts_phone.detection.events import Turn, TurnEnded
from qwen3tts_phone.detection.turn_buffer import PRE_ROLL_S
from qwen3tts_phone.detection.turn_transcriber import GapMeter, TurnTranscriber
from tests.fakes import FakeClock


def frame(timestamp: int, at: float, count: int = 160) -> HeardFrame:
    return HeardFrame(np.full(count, 100, np.int16), at, False, 8000, timestamp)


def test_what_a_far_end_did_not_send_is_a_hole_of_that_length() -> None:
    whole = GapMeter()
    assert whole.hole_s(frame(0, 1.0)) == 0.0
    assert whole.hole_s(frame(160, 1.02)) == 0.0
    assert whole.hole_s(frame(160 + 160 + 4000, 1.54)) == pytest.approx(0.5)


def test_frames_that_come_late_in_a_heap_leave_no_hole() -> None:
    whole = GapMeter()
    whole.hole_s(frame(0, 1.0))
    assert [whole.hole_s(frame(160 * n, 1.5)) for n in range(1, 10)] == [0.0] * 9


def test_where_timestamps_stand_still_arrival_tells_and_a_hole_is_bounded() -> None:
    whole = GapMeter()
    whole.hole_s(frame(0, 1.0))
    assert whole.hole_s(frame(0, 1.05)) == 0.0
    assert whole.hole_s(frame(0, 1.57)) == pytest.approx(0.5)
    assert whole.hole_s(frame(0, 999.0)) == 2.0


def frames(*rates: int) -> Iterator[HeardFrame]:
    """Frames of 20 ms at these rates, one after the other."""
    for number, rate_hz in enumerate(rates):
        at = 1.0 + (number + 1) * 0.02
        samples = np.full(rate_hz // 50, number, np.int16)
        yield HeardFrame(samples, at, False, rate_hz, number * rate_hz // 50, rate_hz)


def turn_of(transcriber: TurnTranscriber, began_at: float, ended_at: float) -> Turn:
    turns: list[Turn] = []
    ended = TurnEnded(ended_at, began_at, ended_at, "pause", False)
    transcriber.end(ended, (), "", turns.append)
    return turns[0]


def test_a_turns_sound_begins_somewhat_before_its_onset() -> None:
    transcriber = TurnTranscriber(None, FakeClock(), 10.0)
    for each in frames(*[8000] * 100):
        transcriber.push(each)
    transcriber.begin(2.5)
    taken = turn_of(transcriber, 2.5, 3.0).samples
    assert len(taken) / 8000 == pytest.approx(0.5 + PRE_ROLL_S, abs=0.001)
    assert taken[0] == round((2.5 - PRE_ROLL_S - 1.0) / 0.02)
    assert taken[-1] == 99


def test_what_is_kept_of_a_turn_is_bounded() -> None:
    transcriber = TurnTranscriber(None, FakeClock(), 2.0)
    for number, each in enumerate(frames(*[8000] * 1000)):
        transcriber.push(each)
        if number == 100:
            transcriber.begin(each.at)
    assert len(turn_of(transcriber, 3.0, 21.0).samples) <= 8000 * (2.0 + 2 * PRE_ROLL_S)


def test_a_codec_that_changes_in_mid_turn_leaves_its_rate() -> None:
    transcriber = TurnTranscriber(None, FakeClock(), 10.0)
    first, second = frames(8000, 48000)
    transcriber.push(first)
    transcriber.begin(1.0)
    transcriber.push(second)
    turn = turn_of(transcriber, 1.0, 1.04)
    assert turn.rate_hz == 8000
    assert len(turn.samples) == 320
