"""Falling and level last sounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from qwen3tts_phone.detection.prosody import Melody, last_sound

RATE = 8000


def voice(pitch_hz: NDArray[np.float64], level: NDArray[np.float64]) -> NDArray[np.int16]:
    """A voiced sound with this pitch and amplitude, one value a sample."""
    phase = 2 * np.pi * np.cumsum(pitch_hz) / RATE
    sound = sum(np.sin(n * phase) / n for n in range(1, 12))
    return np.asarray(level * sound, np.int16)


def sentence(end_hz: float, end_db: float, *, base_hz: float = 180.0) -> NDArray[np.int16]:
    """Two seconds at a pitch, and 0.3 s to another one."""
    steady, last = 2 * RATE, 3 * RATE // 10
    pitch = np.concatenate((np.full(steady, base_hz), np.geomspace(base_hz, end_hz, last)))
    level = 4000 * 10 ** (np.concatenate((np.zeros(steady), np.linspace(0, end_db, last))) / 20)
    return np.concatenate((voice(pitch, level), np.zeros(RATE // 5, np.int16)))


def melody(samples: NDArray[np.int16], rate_hz: int = RATE) -> Melody:
    found = last_sound(samples, rate_hz)
    assert found is not None
    return found.melody


@pytest.mark.parametrize("base_hz", [90.0, 130.0, 180.0, 240.0])
def test_a_fall_of_pitch_and_level_is_an_end(base_hz: float) -> None:
    falling = sentence(0.6 * base_hz if base_hz > 110 else 66, -12, base_hz=base_hz)
    assert melody(falling) is Melody.FALLING


@pytest.mark.parametrize("end_hz", [180.0, 200.0, 260.0])
def test_a_level_or_rising_end_goes_on(end_hz: float) -> None:
    assert melody(sentence(end_hz, 0)) is Melody.LEVEL


def test_silence_noise_and_too_little_voice_have_no_melody() -> None:
    assert last_sound(np.zeros(0, np.int16), RATE) is None
    assert last_sound(np.zeros(RATE, np.int16), RATE) is None
    noise = np.random.default_rng(1).normal(size=RATE) * 1000
    assert last_sound(noise.astype(np.int16), RATE) is None
    assert last_sound(sentence(100, -12)[: RATE // 20], RATE) is None


def test_the_rate_of_the_samples_counts() -> None:
    falling = sentence(105, -12)
    doubled = np.repeat(falling, 2)
    assert melody(doubled, 2 * RATE) is Melody.FALLING


def test_the_semitones_are_those_of_the_pitch() -> None:
    found = last_sound(sentence(90, 0), RATE)
    assert found is not None
    assert -12.5 < found.pitch_st < -8, "an octave down at the very end"


@given(arrays(np.int16, st.integers(0, 3000)))
def test_any_samples_are_read(samples: NDArray[np.int16]) -> None:
    found = last_sound(samples, RATE)
    assert found is None or np.isfinite(found.finality)
