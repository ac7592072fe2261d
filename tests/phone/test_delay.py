"""What is learnt of a network's lateness."""

from __future__ import annotations

import random

import pytest

from qwen3tts_phone.audio.playout import DelayEstimator


def arrivals(delay: DelayEstimator, lateness: list[float], *, first: int = 0) -> None:
    """Packets of 20 ms with a transit of 7 s and this lateness."""
    for number, late in enumerate(lateness, start=first):
        delay.arrived(100 + number * 0.02 + late, 7.0 + late)


def test_an_even_line_needs_no_more_than_a_step() -> None:
    delay = DelayEstimator()
    arrivals(delay, [0.0] * 1000)
    assert delay.bridge_s == pytest.approx(0.005)
    assert delay.least_s == 7.0


def test_the_first_guess_holds_until_something_is_known() -> None:
    assert DelayEstimator(0.06).bridge_s == pytest.approx(0.065)
    assert not DelayEstimator().known


def test_jitter_is_bridged() -> None:
    delay, chance = DelayEstimator(), random.Random(1)
    arrivals(delay, [chance.uniform(0, 0.1) for _ in range(2000)])
    assert delay.bridge_s == pytest.approx(0.1, abs=0.01)


def test_one_packet_in_a_hundred_that_is_late_counts_as_much_as_it_is_heard() -> None:
    delay = DelayEstimator()
    arrivals(delay, [0.04 if number % 100 == 0 else 0.0 for number in range(3000)])
    assert delay.bridge_s == pytest.approx(0.045)


def test_one_stall_in_a_minute_is_not_waited_for() -> None:
    delay = DelayEstimator()
    stall = [max(0.0, 0.3 - 0.02 * number) for number in range(25)]
    arrivals(delay, [0.0] * 3000 + stall + [0.0] * 100)
    assert delay.bridge_s <= 0.01


def test_calm_after_a_storm_is_noticed_within_a_minute() -> None:
    delay, chance = DelayEstimator(), random.Random(1)
    arrivals(delay, [chance.uniform(0, 0.2) for _ in range(500)])
    assert delay.bridge_s > 0.18
    arrivals(delay, [0.0] * 2500, first=500)
    assert delay.bridge_s <= 0.02


@pytest.mark.parametrize("ppm", [200, -200])
def test_a_drifting_clock_moves_the_line_at_rest_and_is_no_jitter(ppm: int) -> None:
    delay = DelayEstimator()
    drift = [number * 0.02 * ppm * 1e-6 for number in range(20_000)]
    arrivals(delay, drift)
    assert delay.bridge_s <= 0.005 + 1e-9
    assert delay.least_s == pytest.approx(7.0 + drift[-1], abs=0.001)


def test_another_stream_keeps_what_is_known_of_the_network() -> None:
    delay, chance = DelayEstimator(), random.Random(1)
    arrivals(delay, [chance.uniform(0, 0.1) for _ in range(2000)])
    before = delay.bridge_s
    delay.restart()
    assert not delay.known
    delay.arrived(200.0, -3.0)
    assert delay.least_s == -3.0
    assert delay.bridge_s == before
