"""Several voices as one signal: each at its time, none over the top."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.softphone.mixer import (
    AHEAD_S,
    BACK_S,
    DELAY_S,
    HZ,
    ON_S,
    PERIOD_S,
    Mixer,
    RingbackTone,
    Samples,
    limited,
)

RATE_HZ = 8000
PTIME_S = 0.02
START = 100.0


def flat(value: int, seconds: float = PTIME_S, rate_hz: int = RATE_HZ) -> Samples:
    return np.full(round(seconds * rate_hz), value, np.int16)


def mixed(mixer: Mixer, until: float) -> Samples:
    return np.concatenate([np.zeros(0, np.int16), *mixer.due(START + until)])


def test_voices_are_added_each_at_its_time() -> None:
    mixer = Mixer(RATE_HZ, 20, START)
    for number in range(10):
        mixer.put("far", flat(1000), RATE_HZ, START + number * PTIME_S)
    mixer.put("ours", flat(500, 0.1), RATE_HZ, START + 0.1)
    heard = mixed(mixer, 0.4)
    assert len(heard) == 0.4 * RATE_HZ
    delay, step = round(DELAY_S * RATE_HZ), round(0.1 * RATE_HZ)
    assert not heard[:delay].any()
    assert set(heard[delay : delay + step]) == {1000}
    assert set(heard[delay + step : delay + 2 * step]) == {1500}
    assert not heard[delay + 2 * step :].any()
    assert mixer.late_s == 0


def test_frames_whose_times_shake_go_on_without_a_step() -> None:
    mixer = Mixer(RATE_HZ, 20, START)
    shakes = np.random.default_rng(1).uniform(-0.008, 0.008, 50)
    signal = np.arange(50 * 160).astype(np.int16)
    for number, shake in enumerate(shakes):
        frame = signal[number * 160 : (number + 1) * 160]
        mixer.put("far", frame, RATE_HZ, START + number * PTIME_S + (shake if number else 0))
    heard = mixed(mixer, 1.2)
    begin = round(DELAY_S * RATE_HZ)
    assert (heard[begin : begin + len(signal)] == signal).all()


def test_a_rate_is_brought_to_that_of_the_mix() -> None:
    mixer = Mixer(RATE_HZ, 20, START)
    at = np.arange(48_000) / 48_000
    whole = np.round(8000 * np.sin(2 * np.pi * 500 * at)).astype(np.int16)
    for number in range(50):
        frame = whole[number * 960 : (number + 1) * 960]
        mixer.put("far", frame, 48_000, START + number * PTIME_S)
    heard = mixed(mixer, 1.0)[2000:6000]
    spectrum = np.abs(np.fft.rfft(heard))
    assert np.argmax(spectrum) * RATE_HZ / len(heard) == 500
    assert np.abs(heard.astype(int)).max() == pytest.approx(8000, abs=100)


def test_what_comes_too_late_is_left_out_and_counted() -> None:
    mixer = Mixer(RATE_HZ, 20, START)
    assert not mixed(mixer, 0.2).any()
    mixer.put("far", flat(1000, 0.1), RATE_HZ, START + 0.1)  # of which 0.06 s are too late
    heard = mixed(mixer, 0.4)
    assert np.count_nonzero(heard) == round(0.04 * RATE_HZ)
    assert mixer.late_s == pytest.approx(0.06)


def test_nothing_of_another_day_is_kept() -> None:
    mixer = Mixer(RATE_HZ, 20, START)
    mixer.put("far", flat(1000), RATE_HZ, START - BACK_S - 1.0)
    mixer.put("far", flat(1000), RATE_HZ, START + AHEAD_S + 1.0)
    mixer.put("far", flat(1000, 0.0), RATE_HZ, START)
    assert not mixed(mixer, 10.0).any()
    assert mixer.late_s == pytest.approx(2 * PTIME_S)


def test_one_voice_is_never_twice_at_the_same_time() -> None:
    mixer = Mixer(RATE_HZ, 20, START)
    mixer.put("far", flat(1000, 0.1), RATE_HZ, START)
    mixer.put("far", flat(1000, 0.1), RATE_HZ, START + 0.05)
    heard = mixed(mixer, 0.5)
    assert heard.max() == 1000
    assert np.count_nonzero(heard) == pytest.approx(0.15 * RATE_HZ, abs=2)


def test_loud_voices_together_are_bent_and_not_cut_off() -> None:
    assert (limited(np.array([23_000, -24_000, 0])) == [23_000, -24_000, 0]).all()
    loud = limited(np.array([30_000, 45_000, 60_000, -65_536]))
    assert (loud[:2] == np.sort(loud[:2])).all()
    assert loud[0] < 30_000
    assert loud[1] < loud[2] <= 32_767
    assert loud[3] >= -32_767


pieces = st.tuples(
    st.sampled_from(["far", "ours"]),
    st.sampled_from([8000, 16_000, 48_000]),
    st.integers(0, 2000),
    st.floats(-10, 10) | st.floats(allow_nan=False, allow_infinity=False, width=32),
)


@given(st.lists(pieces, max_size=20), st.lists(st.floats(0, 0.3), max_size=10))
def test_whatever_comes_each_tick_has_one_frame(
    given: list[tuple[str, int, int, float]], steps: list[float]
) -> None:
    mixer = Mixer(RATE_HZ, 20, START)
    now, count = START, 0
    for step in [*steps, 0.5]:
        for voice, rate_hz, size, at in given[:3]:
            mixer.put(voice, np.full(size, 30_000, np.int16), rate_hz, START + at)
        given = given[3:]
        now += step
        for frame in mixer.due(now):
            count += 1
            assert frame.shape == (160,)
            assert frame.dtype == np.int16
    assert count == pytest.approx((now - START) / PTIME_S, abs=1)


def test_it_rings_a_second_and_is_silent_for_four() -> None:
    samples = RingbackTone(8000).next(round(2 * PERIOD_S * 8000))
    ring, pause = round(ON_S * 8000), round(PERIOD_S * 8000)
    for begin in (0, pause):
        one = samples[begin : begin + ring].astype(float)
        assert np.argmax(np.abs(np.fft.rfft(one))) / ON_S == HZ
        assert not samples[begin + ring : begin + pause].any()
    assert np.abs(np.diff(samples.astype(int))).max() < 800, "no click"


def test_the_pieces_are_the_whole() -> None:
    whole, cut = RingbackTone(48_000), RingbackTone(48_000)
    pieces = [cut.next(count) for count in (1, 959, 960, 5000, 0, 100_000)]
    assert (np.concatenate(pieces) == whole.next(106_920)).all()
