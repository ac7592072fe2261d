from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from qwen3tts_engine.guards import BLOCK
from qwen3tts_engine.speech_rhythm import PAUSE_BLOCKS, Pauses, SpeechRate, SpeechRates, Syllables


def of(*stretches: tuple[int, float]) -> tuple[Pauses, list[float]]:
    """The pauses of stretches of blocks of a level."""
    pauses = Pauses()
    levels = [level for blocks, level in stretches for _ in range(blocks)]
    for level in levels:
        pauses.take(level)
    return pauses, levels


def test_a_stretch_of_silence_is_a_pause_and_a_closure_is_not() -> None:
    pauses, _ = of((50, -20.0), (8, -80.0), (50, -20.0), (30, -80.0), (40, -20.0))
    assert [(pause.start, pause.voiced) for pause in pauses.found] == [(108, 108)]
    assert pauses.ends_of(0) == 138
    assert (pauses.blocks, pauses.voiced, pauses.last_voice) == (178, 148, 178)


def test_silence_is_what_lies_far_below_the_voice() -> None:
    loud, _ = of((50, -10.0), (30, -42.0), (50, -10.0))
    quiet, _ = of((50, -28.0), (30, -42.0), (50, -28.0))
    assert len(loud.found) == 1
    assert not quiet.found


def test_a_pause_is_found_when_it_has_lasted_long_enough() -> None:
    pauses, _ = of((20, -20.0), (PAUSE_BLOCKS - 1, -90.0))
    assert not pauses.found
    assert pauses.voiced == 20 + PAUSE_BLOCKS - 1
    assert pauses.take(-90.0) is not None
    assert pauses.voiced == 20
    assert pauses.take(-90.0) is None


def test_voiced_time_leaves_the_pauses_out() -> None:
    pauses, _ = of((15, -80.0), (50, -20.0), (30, -80.0), (50, -20.0))
    assert pauses.starts_at(0) == 15
    assert pauses.ends_at(0) == 0
    assert pauses.ends_at(50) == 65
    assert pauses.starts_at(50) == 95
    assert pauses.ends_at(60) == pauses.starts_at(60) == 105
    assert [pauses.voiced_at(block) for block in (0, 10, 15, 40, 65, 80, 95, 100)] == [
        0,
        0,
        0,
        25,
        50,
        50,
        50,
        55,
    ]


@given(st.lists(st.tuples(st.integers(1, 40), st.sampled_from((-20.0, -85.0))), max_size=8))
@settings(derandomize=True, deadline=None)
def test_every_block_is_voiced_or_in_a_pause(stretches: list[tuple[int, float]]) -> None:
    pauses, levels = of(*stretches)
    skipped = sum(
        pauses.ends_of(index) - pauses.found[index].start for index in range(len(pauses.found))
    )
    assert pauses.voiced + skipped == pauses.blocks == len(levels)
    before = 0.0
    for block in range(pauses.blocks + 1):
        voiced = pauses.voiced_at(block)
        assert before <= voiced <= before + 1
        assert pauses.ends_at(voiced) <= block <= pauses.starts_at(voiced)
        before = voiced


@pytest.mark.parametrize("kind", [np.int16, np.float32])
def test_levels_are_of_whole_blocks_whatever_the_chunks(kind: Any) -> None:
    sound: NDArray[Any] = np.concatenate(
        [np.full(BLOCK, value, kind) for value in (0, 16384 if kind is np.int16 else 0.5)]
    )
    pauses = Pauses()
    levels: list[float] = []
    for part in np.array_split(sound, 7):
        levels += pauses.levels(part)
    assert levels == pytest.approx([-180, -6.02], abs=0.01)


# --- syllables ---


def count(levels: list[float]) -> Syllables:
    syllables = Syllables()
    for block, level in enumerate(levels):
        syllables.take(level, block)
    return syllables


def test_rises_and_falls_are_syllables_and_ripples_are_not() -> None:
    levels = [-40.0] * 10 + ([-15.0] * 10 + [-35.0] * 10) * 4
    syllables = count(levels)
    assert syllables.count == 4
    # Each where its loud part is, after what precedes.
    for number, peak in enumerate(syllables.peaks):
        assert 10 + 20 * number <= peak <= 22 + 20 * number
    assert count([-20.0 + (block % 2) for block in range(100)]).count == 0


def test_what_is_far_below_the_voice_is_no_syllable() -> None:
    levels = ([-15.0] * 10 + [-60.0] * 10) * 2 + ([-48.0] * 10 + [-80.0] * 10) * 3
    assert count(levels).count == 2


# --- rates ---


def test_a_rate_is_drawn_to_what_is_surest() -> None:
    rate = SpeechRate(usual=16.0, known=None)
    assert rate.blocks == pytest.approx(16)
    unsure = rate.sd
    rate.hear(2, 40.0)
    assert rate.blocks == pytest.approx(16), "too few to say anything"
    rate.hear(20, 400.0)
    assert 18.5 < rate.blocks < 20
    assert rate.sd < unsure
    rate.anchor(100.0, 1500.0)
    rate.anchor(0.0, 10.0)
    rate.hear(20, 400.0)
    assert 15 < rate.blocks < 16
    assert SpeechRate(16.0, known=24.0).blocks == pytest.approx(24)


def test_a_pause_fits_the_stop_that_its_time_and_its_syllables_say() -> None:
    rate = SpeechRate(16.0, None)
    fitting = rate.cost(10.0, 160.0, 10)
    assert fitting < 0.01
    assert rate.cost(5.0, 160.0, 10) > fitting < rate.cost(20.0, 160.0, 10)
    assert rate.cost(10.0, 320.0, 10) > fitting < rate.cost(10.0, 160.0, 0) + 1


def test_rates_of_voices_are_bounded_and_the_least_recently_used_go() -> None:
    rates = SpeechRates(most=2)
    rates.put("a", 0.1)
    rates.put("b", 0.2)
    assert rates.get("a") == 0.1
    rates.put("c", 0.3)
    assert rates.get("b") is None
    assert rates.get("a") == 0.1
    assert rates.get("nobody") is None
