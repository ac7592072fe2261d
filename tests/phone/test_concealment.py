"""Packet loss concealment and comfort noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.audio.concealment import (
    BackgroundEstimator,
    ComfortNoise,
    Concealer,
    NoiseSpec,
    build_comfort_noise,
    measure_noise,
    parse_comfort_noise,
)
from tests.phone.voices import Samples, hiss, rms, step, voice

RATES = [8000, 16000, 24000, 48000]
rates = pytest.mark.parametrize("rate", RATES)


def heard_with_holes(pcm: Samples, rate: int, holes: set[int]) -> Samples:
    """20 ms frames of ``pcm`` with those of ``holes`` missing."""
    concealer, frame = Concealer(rate), rate // 50
    return np.concatenate(
        [
            concealer.fill(frame)
            if number in holes
            else concealer.accept(pcm[number * frame : (number + 1) * frame])
            for number in range(len(pcm) // frame)
        ]
    )


@rates
def test_without_a_hole_nothing_is_changed(rate: int) -> None:
    pcm = voice(rate, 0.4)
    assert heard_with_holes(pcm, rate, set()).tolist() == pcm.tolist()


@rates
@pytest.mark.parametrize("pitch_hz", [80.0, 125.0, 210.0, 330.0])
def test_a_vowel_goes_on_through_a_lost_frame(rate: int, pitch_hz: float) -> None:
    pcm = voice(rate, 0.4, pitch_hz)
    heard = heard_with_holes(pcm, rate, {10})
    frame = rate // 50
    lost = slice(10 * frame, 11 * frame)
    wanted = pcm[lost].astype(float)
    likeness = wanted @ heard[lost] / (np.linalg.norm(wanted) * np.linalg.norm(heard[lost]))
    assert likeness > 0.85
    assert 0.7 * rms(pcm) < rms(heard[lost]) < 1.1 * rms(pcm)


@rates
@pytest.mark.parametrize("holes", [{10}, {10, 11}, {9, 13, 14, 15}, {8, 9, 10, 11, 12, 13}])
def test_neither_the_hole_nor_its_end_clicks(rate: int, holes: set[int]) -> None:
    pcm = voice(rate, 0.5)
    assert step(heard_with_holes(pcm, rate, holes)) <= 1.5 * step(pcm)


@rates
def test_after_60_ms_nothing_is_left_but_the_background(rate: int) -> None:
    frame = rate // 50
    pcm = hiss(2 * rate, 20)
    pcm[70 * frame : 75 * frame] += voice(rate, 0.1)
    heard = heard_with_holes(pcm, rate, set(range(75, 90)))
    levels = [rms(heard[n * frame : (n + 1) * frame]) for n in range(75, 90)]
    assert levels[0] > 10 * levels[3]
    for level in levels[3:]:
        assert level == pytest.approx(20, rel=0.4)


def test_one_who_never_pauses_is_not_taken_for_a_background() -> None:
    pcm = voice(8000, 3.0)
    heard = heard_with_holes(pcm, 8000, {20, 21, 22, 23, 24, 140, 141, 142, 143, 144})
    assert not heard[23 * 160 : 25 * 160].any()
    assert rms(heard[143 * 160 : 145 * 160]) < 32768 * 10 ** (-36 / 20)


def test_a_hole_in_digital_silence_is_silent() -> None:
    assert not heard_with_holes(np.zeros(1600, np.int16), 8000, {3, 4, 5}).any()


def test_a_hole_before_anything_was_heard_is_silent() -> None:
    assert not Concealer(8000).fill(160).any()


def test_what_has_no_pitch_goes_on_as_noise() -> None:
    pcm = hiss(4000, 1000)
    heard = heard_with_holes(pcm, 8000, {12})[12 * 160 : 13 * 160].astype(float)
    assert rms(heard[:80].astype(np.int16)) == pytest.approx(1000, rel=0.4)
    spectrum = np.abs(np.fft.rfft(heard[:80])) ** 2
    assert spectrum.max() < 0.25 * spectrum.sum()  # a repeated period would be a row of lines


def test_the_far_ends_own_silence_is_made_at_once() -> None:
    concealer = Concealer(8000)
    concealer.accept(voice(8000, 0.1))
    concealer.use_comfort_noise(NoiseSpec(-50.0))
    made = concealer.fill(1600)
    assert rms(made) == pytest.approx(32768 * 10 ** (-50 / 20), rel=0.2)
    concealer.accept(voice(8000, 0.02))
    assert rms(concealer.fill(160)) > 1000


def test_how_much_is_lost_is_counted_until_something_comes() -> None:
    concealer = Concealer(8000)
    concealer.accept(voice(8000, 0.02))
    concealer.fill(160)
    concealer.fill(80)
    assert concealer.lost_s == 0.03
    concealer.accept(voice(8000, 0.02))
    assert concealer.lost_s == 0.0


@pytest.mark.parametrize("other", [16000, 24000])
def test_at_another_rate_it_knows_what_was_heard(other: int) -> None:
    concealer = Concealer(8000)
    concealer.accept(voice(8000, 0.2))
    made = concealer.at_rate(other).fill(other // 50)
    assert rms(made) > 0.6 * rms(voice(8000, 0.2))


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
    noise = ComfortNoise(silence).generate(2000)
    assert np.isfinite(noise).all()
    if silence.level_dbov <= -90:
        assert not noise.any()
    else:
        level = 20 * np.log10(np.sqrt(np.mean(noise**2)) / 32768)
        assert level == pytest.approx(silence.level_dbov, abs=6)


def test_noise_has_the_spectrum_that_was_heard() -> None:
    low = np.convolve(hiss(8000, 400), np.ones(8) / 8, mode="same").astype(np.int16)
    made = ComfortNoise(measure_noise(low[:400])).generate(8000)

    def tilt(signal: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
        power = np.abs(np.fft.rfft(signal)) ** 2
        half = len(power) // 2
        return 10 * float(np.log10(power[:half].sum() / power[half:].sum()))

    assert tilt(made) == pytest.approx(tilt(low.astype(np.float64)), abs=5)
    assert tilt(made) > 6
    assert np.sqrt(np.mean(made**2)) == pytest.approx(rms(low[:400]), rel=0.25)


def test_noise_goes_on_from_one_frame_to_the_next() -> None:
    silence = measure_noise(voice(8000, 0.03))
    whole = ComfortNoise(silence).generate(400)
    source = ComfortNoise(silence)
    assert np.allclose(np.concatenate([source.generate(150), source.generate(250)]), whole)


def test_digital_silence_makes_no_noise() -> None:
    assert measure_noise(np.zeros(160, np.int16)) == NoiseSpec(-127.0)
    assert not ComfortNoise(NoiseSpec(-127.0)).generate(160).any()


def test_the_background_is_learnt_from_the_pauses_and_follows_it_up() -> None:
    background = BackgroundEstimator()
    for number in range(50):
        background.update(hiss(160, 30, number) if number % 2 else voice(8000, 0.02))
    assert background.silence.level_dbov == pytest.approx(-60.8, abs=2)
    for number in range(400):
        background.update(hiss(160, 300, number))
    assert background.silence.level_dbov == pytest.approx(-40.8, abs=2)
