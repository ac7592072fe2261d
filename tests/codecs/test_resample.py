"""The resampler as a stream: lengths, cuts, limits, exactness."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_codecs import BadSamples, Pcm, Resampler, UnsupportedRate
from tests.codecs.signals import cut, noise, places, resampled

PAIRS = [
    (24000, 8000),
    (24000, 16000),
    (24000, 22050),
    (24000, 48000),
    (24000, 44100),
    (22050, 24000),
    (22050, 8000),
    (22050, 16000),
    (16000, 24000),
    (16000, 8000),
    (48000, 8000),
    (48000, 24000),
    (44100, 8000),
    (44100, 24000),
    (8000, 24000),
    (8000, 16000),
    (8000, 48000),
    (8000, 11025),
    (24000, 24000),
]
pairs = pytest.mark.parametrize(("from_hz", "to_hz"), PAIRS)


@pytest.mark.parametrize("aligned", [False, True])
@pairs
@given(samples=st.integers(0, 3000), where=places())
@settings(max_examples=25, deadline=None)
def test_any_cut_gives_the_same_samples(
    from_hz: int, to_hz: int, aligned: bool, samples: int, where: list[int]
) -> None:
    pcm = noise(samples)
    whole = resampled([pcm], Resampler(from_hz, to_hz, aligned=aligned))
    portions = resampled(cut(pcm, where), Resampler(from_hz, to_hz, aligned=aligned))
    assert portions.tolist() == whole.tolist()


def test_one_sample_at_a_time_gives_the_same_samples() -> None:
    pcm = noise(2000)
    whole = resampled([pcm], Resampler(24000, 8000))
    assert resampled(cut(pcm, range(2000)), Resampler(24000, 8000)).tolist() == whole.tolist()


@pairs
@given(pushes=st.lists(st.integers(0, 2500), max_size=6))
@settings(max_examples=25, deadline=None)
def test_nothing_is_held_back(from_hz: int, to_hz: int, pushes: list[int]) -> None:
    resampler = Resampler(from_hz, to_hz)
    taken = given_back = 0
    for samples in pushes:
        taken += samples
        given_back += len(resampler.push(np.zeros(samples, np.int16)))
        assert given_back == -(-taken * to_hz // from_hz)
    assert len(resampler.flush()) == (resampler.delay_samples if taken else 0)


@pairs
@given(samples=st.integers(0, 2500))
@settings(max_examples=25, deadline=None)
def test_the_aligned_stream_is_as_long_as_its_input(from_hz: int, to_hz: int, samples: int) -> None:
    resampler = Resampler(from_hz, to_hz, aligned=True)
    out = resampled([noise(samples)], resampler)
    assert len(out) == round(Fraction(samples * to_hz, from_hz))


@pairs
def test_the_aligned_stream_is_the_other_one_without_its_delay(from_hz: int, to_hz: int) -> None:
    pcm = noise(5000)
    late = Resampler(from_hz, to_hz)
    aligned = resampled([pcm], Resampler(from_hz, to_hz, aligned=True))
    expected = resampled([pcm], late)[late.delay_samples :][: len(aligned)]
    assert aligned.tolist() == expected.tolist()


@pytest.mark.parametrize("aligned", [False, True])
@pairs
def test_after_the_end_it_is_as_new(from_hz: int, to_hz: int, aligned: bool) -> None:
    pcm = noise(3001)
    resampler = Resampler(from_hz, to_hz, aligned=aligned)
    first = resampled([pcm], resampler)
    assert resampled([pcm], resampler).tolist() == first.tolist()
    resampler.push(noise(777, seed=2))
    resampler.reset()
    assert resampled([pcm], resampler).tolist() == first.tolist()


@pairs
def test_the_end_of_nothing_is_nothing(from_hz: int, to_hz: int) -> None:
    resampler = Resampler(from_hz, to_hz)
    assert resampler.push(np.zeros(0, np.int16)).tolist() == []
    assert resampler.flush().tolist() == []


@pairs
@pytest.mark.parametrize("level", [-32768, -1, 1, 12345, 32767])
def test_a_level_stays_that_level(from_hz: int, to_hz: int, level: int) -> None:
    resampler = Resampler(from_hz, to_hz)
    out = resampler.push(np.full(from_hz // 10, level, np.int16))
    assert set(out[2 * resampler.delay_samples + 1 :].tolist()) == {level}


@pytest.mark.parametrize("aligned", [False, True])
@pairs
def test_the_last_sample_is_not_lost(from_hz: int, to_hz: int, aligned: bool) -> None:
    resampler = Resampler(from_hz, to_hz, aligned=aligned)
    pcm = np.zeros(from_hz // 10, np.int16)
    pcm[-1] = 32767
    out = resampled([pcm], resampler)
    at = (len(pcm) - 1) * to_hz / from_hz + (0 if aligned else resampler.delay_samples)
    # The output's peak is where the click was, or at the end where half a sample more is cut.
    assert abs(int(np.argmax(np.abs(out))) - min(at, len(out) - 1)) <= 0.5


@pairs
def test_the_loudest_input_saturates_and_never_wraps(from_hz: int, to_hz: int) -> None:
    square = np.tile(np.repeat(np.array([32767, -32768], np.int16), 40), 60)
    out = resampled([square], Resampler(from_hz, to_hz)).astype(np.int32)
    assert out.max() == 32767
    assert out.min() == -32768
    # A wrapped sample is a step from one limit to the other and back again.
    steps = np.diff(out)
    assert not np.any((np.abs(steps[:-1]) > 60000) & (np.abs(steps[1:]) > 60000))


@pairs
def test_the_samples_are_those_of_exact_arithmetic(from_hz: int, to_hz: int) -> None:
    """By whole numbers, one output at a time, straight from the definition."""
    pcm = noise(1200)
    resampler = Resampler(from_hz, to_hz)
    up, down = resampler.taps_hz // from_hz, resampler.taps_hz // to_hz
    taps = [int(tap) for tap in resampler.taps * 2**30]
    assert [tap / 2**30 for tap in taps] == resampler.taps.tolist()
    values = pcm.tolist()
    expected = []
    for output in range(0, -(-len(pcm) * up // down), 7):
        at = output * down
        newest = at // up
        total = sum(
            taps[at - index * up] * values[index]
            for index in range(max(0, newest - len(taps) // up - 1), newest + 1)
            if at - index * up < len(taps)
        )
        expected.append(min(32767, max(-32768, round(Fraction(total, 2**30)))))
    assert resampler.push(pcm)[::7].tolist() == expected


def test_the_filter_of_the_telephone_is_the_same_on_every_machine() -> None:
    taps = (Resampler(24000, 8000).taps * 2**30).astype("<i8")
    assert len(taps) == 145
    assert hashlib.sha256(taps.tobytes()).hexdigest()[:16] == "267158e116ece66e"


def test_equal_rates_pass_a_copy() -> None:
    pcm = noise(10)
    resampler = Resampler(8000, 8000)
    out = resampler.push(pcm)
    assert out.tolist() == pcm.tolist()
    assert not np.shares_memory(out, pcm)
    assert resampler.delay_s == 0.0


def test_what_was_returned_stays_as_it_was() -> None:
    resampler = Resampler(24000, 8000)
    first = resampler.push(noise(480))
    kept = first.copy()
    resampler.push(noise(480, seed=2))
    assert first.tolist() == kept.tolist()


def test_arrays_with_gaps_are_taken() -> None:
    pcm = noise(960)
    out = Resampler(24000, 8000).push(pcm[::2])
    assert out.tolist() == Resampler(24000, 8000).push(pcm[::2].copy()).tolist()


@pytest.mark.parametrize("rate", [0, -8000, 3999, 192_001, 8000.0, "8000", None, True])
def test_a_rate_out_of_bounds_is_refused(rate: Any) -> None:
    with pytest.raises(UnsupportedRate, match="from_hz"):
        Resampler(rate, 8000)
    with pytest.raises(UnsupportedRate, match="to_hz"):
        Resampler(8000, rate)


def test_rates_that_share_no_factor_are_refused_with_the_way_round() -> None:
    with pytest.raises(UnsupportedRate, match=r"23999:24000.*by way of"):
        Resampler(24000, 23999)


@pytest.mark.parametrize(
    "pcm", [b"\0\0", [0, 0], np.zeros(4), np.zeros((2, 2), np.int16), np.zeros(2, np.uint16)]
)
@pytest.mark.parametrize("to_hz", [8000, 24000])
def test_wrong_samples_are_refused_and_change_nothing(pcm: Any, to_hz: int) -> None:
    resampler = Resampler(24000, to_hz)
    with pytest.raises(BadSamples, match=r"Resampler\.push"):
        resampler.push(pcm)
    good: Pcm = noise(480)
    fresh = resampled([good], Resampler(24000, to_hz))
    assert resampled([good], resampler).tolist() == fresh.tolist()
