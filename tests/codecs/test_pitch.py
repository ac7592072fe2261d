"""Time-scale changes: shorter or longer by a pitch period, at the same pitch, without a click."""

from __future__ import annotations

import numpy as np
import pytest

from qwen3tts_codecs.pitch import lengthen, shorten
from tests.phone.voices import Samples, hiss, step, voice

rates = pytest.mark.parametrize("rate", [8000, 16000, 24000])


def periods(pcm: Samples, rate: int) -> float:
    """The pitch of a voice of about 125 Hz, by its spectrum."""
    spectrum = np.abs(np.fft.rfft(pcm.astype(float) * np.hanning(len(pcm)), 1 << 17))
    low, high = (round(hz * (1 << 17) / rate) for hz in (100, 150))
    return (low + int(np.argmax(spectrum[low:high]))) * rate / (1 << 17)


@rates
def test_a_vowel_is_cut_by_a_period_and_nothing_is_heard_of_it(rate: int) -> None:
    pcm = voice(rate, 0.3)
    left, cut = shorten(pcm, rate, rate // 50)
    assert cut in (rate // 125 - 1, rate // 125, rate // 125 + 1)
    assert len(left) == len(pcm) - cut
    assert step(left) <= 1.05 * step(pcm)
    assert periods(left, rate) == pytest.approx(periods(pcm, rate), abs=1)
    assert left[2 * cut :].tolist() == pcm[3 * cut :].tolist()


@rates
def test_a_vowel_is_made_longer_by_a_period(rate: int) -> None:
    pcm = voice(rate, 0.3)
    half = len(pcm) // 2
    played, more = lengthen(pcm[:half], pcm[half:], rate)
    assert more in (rate // 125 - 1, rate // 125, rate // 125 + 1)
    assert len(played) == len(pcm) - half + more
    assert step(np.concatenate((pcm[:half], played))) <= 1.05 * step(pcm)
    assert played[more:].tolist() == pcm[half:].tolist()


def test_no_more_is_cut_than_may_be() -> None:
    pcm = voice(8000, 0.3, 66.7)
    assert shorten(pcm, 8000, 119)[1] <= 119
    left, cut = shorten(pcm, 8000, 10)
    assert cut == 0
    assert left.tolist() == pcm.tolist()


def test_what_does_not_look_like_itself_is_left_alone() -> None:
    pcm = hiss(2400, 2000)
    assert shorten(pcm, 8000, 120)[1] == 0
    assert lengthen(pcm[:1200], pcm[1200:], 8000)[1] == 0


def test_in_a_quiet_place_anything_may_be_cut() -> None:
    quiet = hiss(2400, 8)
    assert shorten(quiet, 8000, 120, quiet=True)[1] > 0
    assert lengthen(quiet[:1200], quiet[1200:], 8000, quiet=True)[1] > 0
    assert shorten(np.zeros(400, np.int16), 8000, 120, quiet=True)[1] > 0


@pytest.mark.parametrize("samples", [0, 1, 19, 80, 120])
def test_too_little_to_look_at_is_left_alone(samples: int) -> None:
    pcm = voice(8000, 1.0)[:samples]
    left, cut = shorten(pcm, 8000, 120)
    assert len(left) == samples - cut
    played, more = lengthen(pcm, pcm, 8000)
    assert len(played) == samples + more
