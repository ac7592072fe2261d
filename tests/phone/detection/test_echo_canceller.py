"""The filter follows an echo's path, through a room and beside a caller, and finds it again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from qwen3tts_phone.detection.echo_canceller import (
    LEAD_TAPS,
    WEIGHT_BLOCK,
    EchoCanceller,
    SampleTimeline,
)
from qwen3tts_phone.detection.echo_search import (
    BAND_EDGES,
    MIN_PEAK,
    EchoGainBound,
    EchoLeakEstimate,
    bands,
    fft_size,
    find_delay,
    find_path,
    find_shift,
)
from tests.phone.detection.spoken import AGENT, CALLER, room_echo_of, spoken

Floats = NDArray[np.float32]
FIT_EVERY = 4 * WEIGHT_BLOCK


def floats(samples: NDArray[np.int16]) -> Floats:
    return samples.astype(np.float32) / np.float32(32768)


def lines(sent: Floats, heard: Floats) -> tuple[SampleTimeline, SampleTimeline]:
    ours, theirs = SampleTimeline(60_000), SampleTimeline(60_000)
    ours.put(sent, 0)
    theirs.put(heard, 0)
    return ours, theirs


def left_of(sent: Floats, heard: Floats, delay: int) -> tuple[Floats, EchoCanceller]:
    """What the filter leaves, piece by piece as it comes, and the filter."""
    ours, theirs = SampleTimeline(60_000), SampleTimeline(60_000)
    ours.put(sent, 0)
    canceller = EchoCanceller(ours, theirs, delay)
    rest = np.zeros(len(heard), np.float32)
    for start in range(0, len(heard) - WEIGHT_BLOCK + 1, WEIGHT_BLOCK):
        stop = start + WEIGHT_BLOCK
        theirs.put(heard[start:stop], start)
        rest[start:stop] = heard[start:stop] - canceller.echo(start, stop)
        if stop % FIT_EVERY == 0:
            canceller.fit(0, stop)
    return rest, canceller


def db(one: Floats, other: Floats) -> float:
    return 10 * float(np.log10(np.sum(one.astype(float) ** 2) / np.sum(other.astype(float) ** 2)))


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("delay", [0, 480, 3200])
def test_what_is_left_of_an_echo_from_a_room_falls_by_15_db(delay: int, seed: int) -> None:
    sent = floats(spoken(AGENT))
    heard = floats(room_echo_of(spoken(AGENT), 12.0, delay, seed))
    rest, _ = left_of(sent, heard, delay)
    settled = slice(delay + 12_000, None)
    assert db(rest[settled], heard[settled]) < -15


def test_a_caller_is_left_as_he_is_and_spoils_the_filter_little() -> None:
    sent = floats(spoken(AGENT))
    echo = floats(room_echo_of(spoken(AGENT), 12.0, 480))
    caller = np.zeros_like(echo)
    burst = floats(spoken(CALLER, "en-us+m3", -28.0))[:4800]
    caller[16_000:20_800] = burst
    rest, canceller = left_of(sent, echo + caller, 480)
    spoken_over = slice(16_000, 20_800)
    assert db(rest[spoken_over], burst) == pytest.approx(0, abs=1.0)
    assert db(rest[spoken_over] - burst, burst) < -8
    after = slice(22_400, None)
    assert db(rest[after], echo[after]) < -12
    assert canceller.gain < 1


def test_a_fit_says_what_share_it_leaves_and_nothing_of_silence() -> None:
    sent = floats(spoken(AGENT))
    heard = floats(room_echo_of(spoken(AGENT), 12.0, 480))
    canceller = EchoCanceller(*lines(sent, heard), 480)
    assert canceller.fit(0, 1000) == 1.0  # less than it looks at
    shares = [canceller.fit(0, 12_800) for _ in range(5)]
    assert shares[0] < 0.3
    assert shares[0] < shares[-1] <= 1  # there is little left to gain
    silent = EchoCanceller(*lines(np.zeros(16_000, np.float32), heard), 480)
    assert silent.fit(0, 12_800) == 1.0
    assert not silent.taps.any()


@pytest.mark.parametrize("delay", [0, 37, 800, 4000, 5400])
def test_the_delay_of_an_echo_from_a_room_is_found(delay: int) -> None:
    sent = floats(spoken(AGENT))
    ours, theirs = lines(sent, floats(room_echo_of(spoken(AGENT), 12.0, delay)))
    found = find_delay(theirs.get(delay + 4000, delay + 8000), ours, delay + 4000)
    assert found is not None
    assert found.peak > MIN_PEAK
    assert abs(found.delay - delay) < LEAD_TAPS


def test_another_voice_is_no_echo() -> None:
    ours, theirs = lines(floats(spoken(AGENT)), floats(spoken(CALLER, "en-us+m3", -22.0))[:16_000])
    for count in (1600, 3200, 6400):
        assert find_path(ours, theirs, count).canceller is None


def test_of_silence_there_is_no_delay() -> None:
    assert find_delay(np.ones(1600, np.float32), SampleTimeline(8000), 4000) is None


@pytest.mark.parametrize("moved", [-480, -3, 0, 160, 2400])
def test_a_path_that_has_merely_moved_is_found_by_120_ms(moved: int) -> None:
    voice = spoken(AGENT)
    sent = floats(voice)
    _, canceller = left_of(sent, floats(room_echo_of(voice, 12.0, 800))[:16_000], 800)
    loud = int(np.argmax(np.convolve(np.abs(sent[16_000:-4000]), np.ones(960)))) + 16_000
    heard = floats(room_echo_of(voice, 12.0, 800 + moved))[: loud + 800 + moved]
    assert find_shift(*lines(sent, heard), canceller) == moved


@pytest.mark.parametrize("moved", [-480, 160])
def test_forty_milliseconds_after_a_path_has_moved_it_is_found(moved: int) -> None:
    voice = spoken(AGENT)
    sent = floats(voice)
    before, after = (floats(room_echo_of(voice, 12.0, 800 + by)) for by in (0, moved))
    _, canceller = left_of(sent, before[:16_000], 800)
    loud = int(np.argmax(np.convolve(np.abs(sent[16_000:-4000]), np.ones(960)))) + 16_800
    heard = np.concatenate((before[: loud - 320], after[loud - 320 : loud]))
    assert find_shift(*lines(sent, heard), canceller) == moved


def test_a_caller_beside_the_echo_moves_no_path() -> None:
    voice = spoken(AGENT)
    sent = floats(voice)
    echo = floats(room_echo_of(voice, 12.0, 800))
    _, canceller = left_of(sent, echo[:16_000], 800)
    for stop in range(16_960, 24_000, 960):
        both = echo[:stop].copy()
        other = floats(spoken(CALLER, "en-us+m3", -22.0))
        both[16_000:stop] += other[: stop - 16_000]
        assert find_shift(*lines(sent, both), canceller) in (None, 0)


@given(st.integers(1, 40_000))
def test_a_size_that_is_quick_is_large_enough_and_has_small_factors(least: int) -> None:
    size = fft_size(least)
    assert least <= size < 2 * least
    for factor in (2, 3, 5):
        while size % factor == 0:
            size //= factor
    assert size == 1


def test_where_nothing_comes_back_of_a_loud_word_no_echo_is_loud() -> None:
    bound = EchoGainBound(3)
    word = np.array([1e-2, 1e-2, 0.0])
    assert bound.most(word) == pytest.approx(1e-2)  # nothing is known
    for _ in range(25):
        bound.push(1e-6, word, 160)
    assert bound.most(word) < 1e-5
    assert bound.gains[2] == 1.0  # of this delay nothing was heard yet
    for _ in range(25):
        bound.push(1e-2, word, 160)  # a caller
    assert bound.most(word) < 1e-5
    bound.reset()
    assert bound.most(word) == pytest.approx(1e-2)


def test_what_is_left_is_usual_of_what_was_left_before_and_a_caller_does_not_count() -> None:
    chance = np.random.default_rng(1)
    leak = EchoLeakEstimate()
    sent = chance.normal(0, 0.1, EchoLeakEstimate.EXCITED).astype(np.float32)
    rests = chance.normal(0, 0.01, (100, 160)).astype(np.float32)
    power, usual = [leak.push(rest, sent, callers=False) for rest in rests][-1]
    assert 10 * np.log10(power / usual) == pytest.approx(0, abs=3)
    louds = chance.normal(0, 0.2, (5, 160)).astype(np.float32)
    power, usual_then = [leak.push(loud, sent, callers=True) for loud in louds][-1]
    assert power > 100 * usual
    assert usual_then < 2 * usual


def test_bands_hold_the_power_of_whole_and_short_pieces() -> None:
    for count in (1, 7, 80, 160):
        sound = np.random.default_rng(count).normal(0, 0.1, (50, count)).astype(np.float32)
        powers = bands(sound)
        assert powers.shape == (50, len(BAND_EDGES))
        assert float(powers.sum(axis=1).mean()) == pytest.approx(0.01, rel=0.4)
