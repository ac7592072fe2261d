from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.detection.recogniser import Samples
from qwen3tts_phone.detection.turn_buffer import PAST_S, PRE_ROLL_S, TAIL_S, TurnBuffer

RATE = 8000
FRAME = 160


def numbered(start: int, count: int) -> Samples:
    return (np.arange(start, start + count) % 32768).astype(np.int16)


def heard(audio: TurnBuffer, samples: int, start: int = 0, frame: int = FRAME) -> None:
    """Push samples that are numbered; the first is heard at time 0."""
    for first in range(start, start + samples, frame):
        count = min(frame, start + samples - first)
        audio.push(numbered(first, count), (first + count) / RATE)


def test_a_turn_has_what_was_said_before_it_was_known_that_somebody_speaks() -> None:
    audio = TurnBuffer(RATE)
    heard(audio, RATE)
    audio.begin(at=0.9)
    assert audio.samples()[0] == round((0.9 - PRE_ROLL_S) * RATE)
    assert audio.samples()[-1] == RATE - 1
    heard(audio, FRAME, start=RATE)
    assert len(audio.samples()) == round((0.1 + PRE_ROLL_S) * RATE) + FRAME


def test_a_turn_ends_a_little_after_its_last_voiced_sample() -> None:
    audio = TurnBuffer(RATE)
    heard(audio, RATE)
    audio.begin(at=0.5)
    heard(audio, 2 * RATE, start=RATE)
    assert audio.samples(until=2.0)[-1] == round((2.0 + TAIL_S) * RATE) - 1
    assert audio.samples(until=99.0)[-1] == 3 * RATE - 1
    assert audio.before(2.0) == round((1.5 + PRE_ROLL_S) * RATE)


def test_the_end_of_one_turn_is_not_the_beginning_of_the_next() -> None:
    audio = TurnBuffer(RATE)
    heard(audio, RATE)
    audio.begin(at=0.5)
    audio.end(at=0.95)
    heard(audio, FRAME, start=RATE)
    audio.begin(at=1.0)
    assert audio.samples()[0] == round(0.95 * RATE)


def test_what_lies_further_back_is_forgotten() -> None:
    audio = TurnBuffer(RATE)
    heard(audio, 10 * RATE)
    audio.begin(at=1.0)
    assert PAST_S * RATE <= len(audio.samples()) < PAST_S * RATE + FRAME


def test_a_turn_without_an_end_is_bounded_and_says_what_is_lost() -> None:
    audio = TurnBuffer(RATE, longest_s=1.0)
    heard(audio, RATE // 10)
    audio.begin(at=0.0)
    heard(audio, 3 * RATE, start=RATE // 10)
    assert len(audio.samples()) == RATE
    assert audio.lost == 2 * RATE + RATE // 10
    assert audio.samples()[-1] == 3 * RATE + RATE // 10 - 1


def test_a_long_turn_is_cut_where_it_is_quietest() -> None:
    audio = TurnBuffer(RATE)
    loud = np.full(3 * RATE, 5000, np.int16)
    loud[20_000:20_800] = 3
    audio.begin(at=0.0)
    audio.push(loud, 3.0)
    piece = audio.cut(2.6)
    assert 20_000 <= len(piece) < 20_800
    assert len(piece) + len(audio.samples()) == 3 * RATE
    assert audio.duration_s == len(audio.samples()) / RATE


def test_a_gap_in_what_is_heard_does_not_move_what_comes_after() -> None:
    audio = TurnBuffer(RATE)
    heard(audio, RATE)
    audio.push(numbered(RATE, FRAME), 5.0)  # nothing came for four seconds
    audio.begin(at=5.0 - 0.02)
    assert audio.samples()[-1] == RATE + FRAME - 1
    assert len(audio.samples()) == FRAME


def test_samples_are_copied() -> None:
    audio = TurnBuffer(RATE)
    frame = numbered(0, FRAME)
    audio.begin(at=0.0)
    audio.push(frame, 0.02)
    frame[:] = 0
    assert audio.samples()[-1] == FRAME - 1


@pytest.mark.parametrize(("rate", "longest"), [(0, 1.0), (8000, 0.0)])
def test_sizes_that_are_none(rate: int, longest: float) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        TurnBuffer(rate, longest_s=longest)


@given(
    st.lists(st.integers(0, 700), min_size=1, max_size=40),
    st.floats(-1.0, 3.0),
    st.floats(-1.0, 4.0),
)
def test_a_turn_is_one_stretch_of_what_was_heard(
    sizes: list[int], begin: float, end: float
) -> None:
    audio = TurnBuffer(RATE)
    total = 0
    for number, size in enumerate(sizes):
        if number == len(sizes) // 2:
            audio.begin(begin)
        audio.push(numbered(total, size), (total + size) / RATE)
        total += size
    samples = audio.samples(until=end)
    assert (np.diff(samples.astype(np.int32)) == 1).all()
    assert 0 <= audio.before(end) <= len(audio.samples())
