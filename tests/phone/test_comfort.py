"""Comfort noise: packets of RFC 3389, and how a silence sounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.audio.concealment import (
    BackgroundEstimator,
    ComfortNoise,
    NoiseSpec,
    build_comfort_noise,
    measure_noise,
    parse_comfort_noise,
)
from tests.phone.voices import hiss, rms, voice


def test_a_packet_says_its_level_and_spectrum() -> None:
    """RFC 3389 sections 3.1 and 3.2: -dBov, then k = 258 * (N - 127) / 32768."""
    silence = parse_comfort_noise(bytes((60, 127, 254, 0)))
    assert silence is not None
    assert silence.level_dbov == -60
    assert silence.reflection == pytest.approx((0.0, 258 * 127 / 32768, -258 * 127 / 32768))


def test_the_first_bit_is_no_level_and_255_no_coefficient() -> None:
    silence = parse_comfort_noise(bytes((0x80 | 40, 255)))
    assert silence == parse_comfort_noise(bytes((40, 254)))


def test_an_empty_packet_is_none() -> None:
    assert parse_comfort_noise(b"") is None


@given(level=st.integers(0, 127), steps=st.lists(st.integers(0, 254), max_size=12))
def test_what_is_written_is_read_again(level: int, steps: list[int]) -> None:
    payload = bytes((level, *steps))
    silence = parse_comfort_noise(payload)
    assert silence is not None
    assert build_comfort_noise(silence) == payload


@given(st.binary(min_size=1, max_size=300))
def test_noise_of_any_packet_is_finite_and_of_its_level(payload: bytes) -> None:
    silence = parse_comfort_noise(payload)
    assert silence is not None
    noise = ComfortNoise(silence).make(2000)
    assert np.isfinite(noise).all()
    if silence.level_dbov <= -90:
        assert not noise.any()
    else:
        level = 20 * np.log10(np.sqrt(np.mean(noise**2)) / 32768)
        assert level == pytest.approx(silence.level_dbov, abs=6)


def test_noise_has_the_spectrum_that_was_heard() -> None:
    low = np.convolve(hiss(8000, 400), np.ones(8) / 8, mode="same").astype(np.int16)
    made = ComfortNoise(measure_noise(low[:400])).make(8000)

    def tilt(signal: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
        power = np.abs(np.fft.rfft(signal)) ** 2
        half = len(power) // 2
        return 10 * float(np.log10(power[:half].sum() / power[half:].sum()))

    assert tilt(made) == pytest.approx(tilt(low.astype(np.float64)), abs=5)
    assert tilt(made) > 6
    assert np.sqrt(np.mean(made**2)) == pytest.approx(rms(low[:400]), rel=0.25)


def test_noise_goes_on_from_one_frame_to_the_next() -> None:
    silence = measure_noise(voice(8000, 0.03))
    whole = ComfortNoise(silence).make(400)
    source = ComfortNoise(silence)
    assert np.allclose(np.concatenate([source.make(150), source.make(250)]), whole)


def test_digital_silence_makes_no_noise() -> None:
    assert measure_noise(np.zeros(160, np.int16)) == NoiseSpec(-127.0)
    assert not ComfortNoise(NoiseSpec(-127.0)).make(160).any()


def test_the_background_is_learnt_from_the_pauses_and_follows_it_up() -> None:
    background = BackgroundEstimator()
    for number in range(50):
        background.hear(hiss(160, 30, number) if number % 2 else voice(8000, 0.02))
    assert background.silence.level_dbov == pytest.approx(-60.8, abs=2)
    for number in range(400):
        background.hear(hiss(160, 300, number))
    assert background.silence.level_dbov == pytest.approx(-40.8, abs=2)
