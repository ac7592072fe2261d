"""Time scaling: length, pitch, delay, and no dependence on how the sound is cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from qwen3tts_codecs.time_scale import TimeScale

RATE = 24_000
Floats = NDArray[np.float32]
SPEEDS = (0.5, 0.7, 0.95, 1.05, 1.3, 2.0, 2.5)


def voiced(seconds: float, pitch_hz: float = 130.0) -> Floats:
    phase = 2 * np.pi * pitch_hz * np.arange(round(seconds * RATE)) / RATE
    harmonics = [0.2 / k * np.sin(k * phase) for k in range(1, 12)]
    return np.asarray(sum(harmonics), np.float32)


def speech_like() -> Floats:
    """Voiced parts of three pitches, a pause and noise."""
    noise = np.random.default_rng(1).normal(0, 0.05, 6000)
    parts = (voiced(0.4, 95), noise, np.zeros(4000), voiced(0.3, 180), voiced(0.3, 240))
    return np.concatenate(parts).astype(np.float32)


def scaled(samples: Floats, speed: float, piece: int = 480) -> Floats:
    scale = TimeScale(speed, RATE)
    made = [scale.push(samples[at : at + piece]) for at in range(0, len(samples), piece)]
    return np.concatenate([*made, scale.end()])


def pitch_of(samples: Floats) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.argmax(spectrum)) * RATE / len(samples)


@pytest.mark.parametrize("speed", SPEEDS)
def test_the_length_changes_and_the_pitch_does_not(speed: float) -> None:
    made = scaled(voiced(2.0), speed)
    assert len(made) == pytest.approx(2.0 * RATE / speed, abs=0.02 * RATE)
    assert pitch_of(made) == pytest.approx(130, abs=2)


@pytest.mark.parametrize("speed", SPEEDS)
def test_no_output_needs_more_than_20_ms_of_input_beyond_its_place(speed: float) -> None:
    samples, scale = speech_like(), TimeScale(speed, RATE)
    for taken in range(240, len(samples), 240):
        scale.push(samples[taken - 240 : taken])
        assert taken - scale.given * speed <= 0.02 * RATE


@pytest.mark.parametrize("speed", SPEEDS)
def test_places_follow_the_speed(speed: float) -> None:
    samples = speech_like()
    scale = TimeScale(speed, RATE)
    scale.push(samples)
    for at in range(0, len(samples) // 2, 2400):
        assert scale.place(at) == pytest.approx(at / speed, abs=1)
    assert scale.place(10 * len(samples)) == scale.given


@pytest.mark.parametrize("speed", SPEEDS)
def test_a_pause_stays_where_it_was(speed: float) -> None:
    samples = voiced(1.5)
    samples[12_000:24_000] = 0
    made = scaled(samples, speed)
    silent = np.flatnonzero(np.convolve(np.abs(made), np.ones(100), "valid") < 1e-4)
    assert silent[0] == pytest.approx(12_000 / speed, abs=0.02 * RATE)
    assert silent[-1] == pytest.approx(24_000 / speed, abs=0.02 * RATE)


@pytest.mark.parametrize("speed", SPEEDS)
def test_no_step_is_larger_than_the_signal_has(speed: float) -> None:
    samples = voiced(1.0)
    assert np.abs(np.diff(scaled(samples, speed))).max() <= 1.3 * np.abs(np.diff(samples)).max()


@settings(deadline=None, max_examples=40)
@given(
    speed=st.sampled_from(SPEEDS),
    cuts=st.lists(st.integers(0, 40_000), max_size=8),
)
def test_the_cut_into_pieces_changes_nothing(speed: float, cuts: list[int]) -> None:
    samples = speech_like()
    whole = scaled(samples, speed, len(samples))
    scale = TimeScale(speed, RATE)
    made = [scale.push(piece) for piece in np.split(samples, sorted(cuts))]
    assert np.array_equal(np.concatenate([*made, scale.end()]), whole)


@settings(deadline=None, max_examples=60)
@given(
    speed=st.floats(0.5, 2.5),
    seed=st.integers(0, 9),
    length=st.integers(0, 30_000),
)
def test_any_sound_at_any_speed_keeps_its_length_within_25_ms(
    speed: float, seed: int, length: int
) -> None:
    draw = np.random.default_rng(seed)
    samples = (draw.normal(0, draw.choice([0, 1e-5, 0.1, 1.0]), length)).astype(np.float32)
    made = scaled(samples, speed, 1920)
    assert len(made) == pytest.approx(length / speed, abs=0.025 * RATE)
    assert np.isfinite(made).all()
    loudest = float(np.abs(samples).max(initial=0))
    assert float(np.abs(made).max(initial=0)) <= loudest * (1 + 1e-6)


def test_at_speed_1_the_samples_pass_unchanged() -> None:
    samples = speech_like()
    scale = TimeScale(1.0, RATE)
    assert scale.push(samples) is samples
    assert not len(scale.end())
    assert scale.place(777) == 777


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan"), float("inf")])
def test_a_speed_that_is_none_is_refused(speed: float) -> None:
    with pytest.raises(ValueError, match="not above 0"):
        TimeScale(speed, RATE)
