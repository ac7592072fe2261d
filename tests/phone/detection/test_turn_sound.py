"""The caller's sound, without holes and at one rate."""

from __future__ import annotations

import numpy as np
import pytest

from qwen3tts_phone.audio.frames import HeardFrame
from qwen3tts_phone.detection.turn_transcriber import PRE_ROLL_S, GapMeter, TurnSound


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


def test_a_turns_sound_begins_somewhat_before_its_onset() -> None:
    sound = TurnSound(10.0)
    for number in range(100):
        sound.push(np.full(160, number, np.int16), 8000, 1.0 + (number + 1) * 0.02)
    sound.begin(2.5)
    taken = sound.end()
    assert len(taken) / 8000 == pytest.approx(0.5 + PRE_ROLL_S, abs=0.001)
    assert taken[0] == round((2.5 - PRE_ROLL_S - 1.0) / 0.02)
    assert taken[-1] == 99


def test_what_is_kept_is_bounded_with_and_without_a_turn() -> None:
    sound = TurnSound(2.0)
    for number in range(1000):
        sound.push(np.zeros(160, np.int16), 8000, number * 0.02)
    assert len(sound.so_far()) <= 8000
    sound.begin(20.0)
    for number in range(1000, 2000):
        sound.push(np.zeros(160, np.int16), 8000, number * 0.02)
    assert len(sound.end()) <= 8000 * (2.0 + 2 * PRE_ROLL_S)


def test_a_codec_that_changes_in_mid_turn_leaves_its_rate() -> None:
    sound = TurnSound(10.0)
    sound.begin(0.0)
    sound.push(np.zeros(160, np.int16), 8000, 0.02)
    sound.push(np.zeros(960, np.int16), 48000, 0.04)
    assert sound.rate_hz == 8000
    assert len(sound.end()) == 320
