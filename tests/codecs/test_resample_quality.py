"""What the resampler does to sound: aliases, ripple, delay, noise."""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest
from scipy import signal

from qwen3tts_codecs import Resampler
from tests.codecs.signals import fitted, noise, resampled, response, rms, tone

# What is asked of 24 to 8 kHz; other pairs scale with the lower rate.
PASS_HZ, STOP_HZ = 3400, 4600
QUALITY_PAIRS = [
    (24000, 8000),
    (24000, 16000),
    (24000, 22050),
    (24000, 48000),
    (22050, 24000),
    (16000, 8000),
    (48000, 8000),
    (48000, 24000),
    (44100, 8000),
    (8000, 24000),
    (8000, 16000),
]
pairs = pytest.mark.parametrize(("from_hz", "to_hz"), QUALITY_PAIRS)


@pairs
def test_the_filter_is_flat_below_and_closed_above(from_hz: int, to_hz: int) -> None:
    resampler = Resampler(from_hz, to_hz)
    scale = min(from_hz, to_hz) / 8000
    hz, gain_db = response(resampler)
    assert np.abs(gain_db[hz <= PASS_HZ * scale]).max() <= 0.02
    assert gain_db[hz >= STOP_HZ * scale].max() <= -94.0


@pairs
def test_the_filter_is_symmetric_so_that_its_delay_is_that_of_every_frequency(
    from_hz: int, to_hz: int
) -> None:
    resampler = Resampler(from_hz, to_hz)
    # Each phase is scaled to a sum of exactly 1, which moves single taps by the last bits alone.
    assert np.abs(resampler.taps - resampler.taps[::-1]).max() <= 1e-4
    centre = (len(resampler.taps) - 1) / 2 / resampler.taps_hz
    assert resampler.delay_s == pytest.approx(centre, abs=1e-12)


def test_the_delay_to_the_telephone_is_3_ms() -> None:
    assert Resampler(24000, 8000).delay_s == 0.003
    assert Resampler(24000, 8000).delay_samples == 24


@pytest.mark.parametrize("hz", [*range(4600, 11100, 200), 7999, 8000, 8001, 11999])
def test_tones_above_the_telephone_band_leave_nothing(hz: int) -> None:
    out = resampled([tone(hz, 24000, 0.5)], Resampler(24000, 8000))
    # Away from the ends, where the tone is switched on and off.
    steady = out[80:-80]
    assert rms(steady) <= 10 ** (-90 / 20) * 29491 / math.sqrt(2)


@pytest.mark.parametrize("hz", [50, 100, 300, 1000, 2000, 3000, 3400])
def test_tones_of_the_telephone_band_pass_unchanged(hz: int) -> None:
    resampler = Resampler(24000, 8000)
    steady = resampled([tone(hz, 24000, 0.5)], resampler)[80:-80]
    phasor, rest = fitted(steady, hz, 8000)
    assert abs(20 * math.log10(abs(phasor) / 29491)) <= 0.02
    assert 20 * math.log10(29491 / math.sqrt(2) / rest) >= 95  # 16-bit rounding, in and out


@pytest.mark.parametrize("hz", [50, 300, 1000, 3400])
@pairs
def test_a_tone_comes_out_as_late_as_promised(from_hz: int, to_hz: int, hz: int) -> None:
    resampler = Resampler(from_hz, to_hz)
    skip = to_hz // 100
    steady = resampled([tone(hz, from_hz, 0.5)], resampler)[skip:-skip]
    phasor, _ = fitted(steady, hz, to_hz)
    late = 2 * math.pi * hz * (skip / to_hz - resampler.delay_s)
    error_s = cmath.phase(phasor * cmath.exp(-1j * late)) / (2 * math.pi * hz)
    assert abs(error_s) <= 1e-6


@pairs
def test_an_aligned_tone_is_the_tone_sampled_at_the_other_rate(from_hz: int, to_hz: int) -> None:
    resampler = Resampler(from_hz, to_hz, aligned=True)
    out = resampled([tone(997, from_hz, 0.5, 20000)], resampler)
    expected = tone(997, to_hz, 0.5, 20000)
    assert len(out) == len(expected)
    inner = slice(to_hz // 50, -(to_hz // 50))
    assert np.abs(out[inner].astype(int) - expected[inner]).max() <= 4


def test_it_agrees_with_an_independent_implementation_of_the_same_filter() -> None:
    pcm = noise(4800)
    resampler = Resampler(24000, 8000)
    reference = signal.upfirdn(resampler.taps, pcm.astype(np.float64), 1, 3)
    expected = np.clip(np.rint(reference), -32768, 32767)[:1600]
    assert resampler.push(pcm).tolist() == expected.tolist()


def test_there_and_back_is_the_same_speech_band() -> None:
    pcm = tone(440, 8000, 0.5, 12000) + tone(3000, 8000, 0.5, 9000)
    wide = resampled([pcm], Resampler(8000, 24000, aligned=True))
    back = resampled([wide], Resampler(24000, 8000, aligned=True))
    assert len(back) == len(pcm)
    assert np.abs(back[200:-200].astype(int) - pcm[200:-200]).max() <= 8
