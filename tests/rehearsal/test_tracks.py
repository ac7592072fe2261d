"""Tracks of a call on one axis of time."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_phone.audio.frames import HeardFrame, SentFrame
from qwen3tts_rehearsal.tracks import Segment, agent_track, caller_track, merged, segments
from tests.rehearsal.callers import ANSWERED_AT, FRAME, RATE_HZ, SILENCE, LoudDetector, heard, tone

LOUD = tone(0.02)


def frames(pattern: str, late: dict[int, float] | None = None) -> list[HeardFrame]:
    """Frames of 20 ms: ``#`` loud, ``.`` silent, ``-`` missing, ``c`` concealed."""
    made = []
    for number, kind in enumerate(pattern):
        at = ANSWERED_AT + number * 0.02 + (late or {}).get(number, 0.0)
        if kind != "-":
            made.append(heard(SILENCE if kind == "." else LOUD, at, concealed=kind == "c"))
    return made


def loud_range(samples: NDArray[np.int16]) -> tuple[float, float]:
    loud = np.flatnonzero(np.abs(samples.astype(int)) > 500)
    return float(loud[0]) / RATE_HZ, float(loud[-1]) / RATE_HZ


def test_sound_stands_where_it_arrived() -> None:
    track = agent_track(frames("." * 50 + "#" * 50 + "." * 50), ANSWERED_AT, 3.0, RATE_HZ)
    assert loud_range(track.samples) == pytest.approx((1.0, 2.0), abs=0.005)
    assert track.gaps == []


def test_the_jitter_of_a_call_leaves_no_gap() -> None:
    chance = np.random.default_rng(1)
    late = {number: float(chance.uniform(0, 0.05)) for number in range(150)}
    track = agent_track(frames("." * 20 + "#" * 100 + "." * 30, late), ANSWERED_AT, 3.0, RATE_HZ)
    assert track.gaps == []


def test_a_frame_that_is_too_late_is_a_gap_once_and_silence_makes_up_for_it() -> None:
    late = dict.fromkeys(range(40, 60), 0.12)
    pattern = "." * 20 + "#" * 60 + "." * 60 + "#" * 10
    track = agent_track(frames(pattern, late), ANSWERED_AT, 4.0, RATE_HZ)
    assert track.gaps == [pytest.approx(0.8, abs=0.02)]
    assert loud_range(track.samples)[1] == pytest.approx(3.0, abs=0.03)


def test_missing_frames_are_gaps_where_the_line_loses_none() -> None:
    pattern = "." * 20 + "#" * 20 + "cc" + "#" * 20 + "c" + "." * 5
    assert len(agent_track(frames(pattern), ANSWERED_AT, 2.0, RATE_HZ).gaps) == 2
    lossy = agent_track(frames(pattern), ANSWERED_AT, 2.0, RATE_HZ, lossless=False)
    assert lossy.gaps == []
    assert lossy.lost == 3


def test_silent_frames_cut_out_of_loud_sound_are_holes() -> None:
    track = agent_track(frames("#" * 20 + "..." + "#" * 20), ANSWERED_AT, 1.0, RATE_HZ)
    assert track.gaps == [pytest.approx(0.4, abs=0.001)]


@pytest.mark.parametrize("pause", ["." * 20, "." * 11])
def test_a_pause_of_the_agent_is_no_hole(pause: str) -> None:
    assert agent_track(frames("#" * 20 + pause + "#" * 20), ANSWERED_AT, 2.0, RATE_HZ).gaps == []


def test_sound_that_fades_into_silence_leaves_no_hole() -> None:
    fading = np.rint(LOUD * np.linspace(1, 0, FRAME) ** 2).astype(np.int16)
    rest = ((fading, 0.2), (SILENCE, 0.22), (LOUD, 0.24))
    made = [*frames("#" * 10), *(heard(samples, ANSWERED_AT + at) for samples, at in rest)]
    assert agent_track(made, ANSWERED_AT, 1.0, RATE_HZ).gaps == []


def test_the_callers_sound_counts_from_before_its_frame_left() -> None:
    sent = [SentFrame(LOUD, RATE_HZ, ANSWERED_AT + 1.0 + number * 0.02) for number in range(10)]
    begin, end = loud_range(caller_track(sent, ANSWERED_AT, 2.0, RATE_HZ))
    assert begin == pytest.approx(0.98, abs=0.005)
    assert end == pytest.approx(1.18, abs=0.005)


def test_what_lies_before_the_answer_or_after_the_end_is_left_out() -> None:
    early = [SentFrame(LOUD, RATE_HZ, ANSWERED_AT + 0.005), SentFrame(LOUD, RATE_HZ, 200.0)]
    assert len(caller_track(early, ANSWERED_AT, 1.0, RATE_HZ)) == 2 * RATE_HZ
    agent_track([heard(LOUD, 99.99), heard(LOUD, 300.0)], ANSWERED_AT, 1.0, RATE_HZ)
    assert len(agent_track([], ANSWERED_AT, 0.0, RATE_HZ).samples) == RATE_HZ


def test_speech_is_found_with_its_beginning_and_end() -> None:
    samples = np.zeros(4 * RATE_HZ, np.int16)
    samples[8000:16000] = tone(1.0)
    samples[17000:20000] = tone(3000 / RATE_HZ)
    samples[26000:28000] = tone(0.25)
    samples[31000:31080] = 9000  # a click
    found = segments(samples, RATE_HZ, LoudDetector())
    bounds = [bound for each in found for bound in (each.start_s, each.end_s)]
    assert bounds == pytest.approx([1.0, 2.5, 3.25, 3.5], abs=0.006)
    assert all(each.stopped for each in found)


def test_sound_that_dies_away_is_not_stopped() -> None:
    samples = np.zeros(2 * RATE_HZ, np.int16)
    fade = np.concatenate((np.ones(4000), 10 ** (-np.linspace(0, 60, 2400) / 20)))
    samples[4000:10400] = np.rint(tone(6400 / RATE_HZ) * fade).astype(np.int16)
    (only,) = segments(samples, RATE_HZ, LoudDetector())
    assert not only.stopped


def test_segments_are_joined_over_short_pauses() -> None:
    found = [Segment(0.0, 1.0), Segment(1.5, 2.0, stopped=True), Segment(3.0, 4.0)]
    assert merged(found, 0.7) == [Segment(0.0, 2.0, stopped=True), Segment(3.0, 4.0)]
    assert merged([], 0.7) == []


def test_wideband_is_judged_as_narrowband_is() -> None:
    samples = np.zeros(2 * 16_000, np.int16)
    samples[16_000:24_000] = tone(0.5, rate_hz=16_000)
    (only,) = segments(samples, 16_000, LoudDetector())
    assert only.start_s == pytest.approx(1.0, abs=0.01)
    assert only.end_s == pytest.approx(1.5, abs=0.01)
