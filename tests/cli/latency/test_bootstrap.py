from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student_t

from qwen3tts_cli.latency.bootstrap import (
    MAX_BINS,
    MAX_GROUPS,
    MIN_CALLS,
    Difference,
    Sample,
    Verdict,
    percentile_differences,
    share_difference,
    student,
)

Rng = np.random.Generator


def times(rng: Rng, calls: int, each: int, *, slower: float = 0.0, of_calls: float = 0.2) -> Sample:
    """Log-normal times around 150 ms of calls that differ as much as ``of_calls`` says."""
    names = np.repeat(np.arange(calls), each)
    logs = 5 + slower + rng.normal(0, of_calls, calls)[names] + rng.normal(0, 0.2, len(names))
    return Sample.of(np.exp(logs), names)


def true_difference(percent: float, slower: float, of_calls: float = 0.2) -> float:
    spread = NormalDist().inv_cdf(percent / 100) * math.hypot(of_calls, 0.2)
    return math.exp(5 + slower + spread) - math.exp(5 + spread)


def one(before: Sample, after: Sample, percent: float = 50, **others: float) -> Difference:
    return percentile_differences(before, after, [percent], **others)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("calls", "each", "percent"), [(10, 10, 50), (20, 10, 50), (60, 8, 95), (200, 25, 99)]
)
def test_intervals_hold_the_truth_as_often_as_they_say(
    calls: int, each: int, percent: float
) -> None:
    rng = np.random.default_rng(calls)
    truth = true_difference(percent, 0.1)
    held = told = 0
    for seed in range(150 if calls < 100 else 60):
        found = percentile_differences(
            times(rng, calls, each),
            times(rng, calls, each, slower=0.1),
            [percent],
            replicates=300,
            seed=seed,
        )[0]
        told += found.has_interval
        held += found.has_interval and found.low <= truth <= found.high
    assert told > 50
    # 95 % is meant; below 90 % or at 100 % would be by chance once in many thousand runs.
    assert 0.9 <= held / told < 1


def test_intervals_that_take_utterances_for_independent_would_hold_it_too_seldom() -> None:
    """What drawing calls is for: calls differ, and utterances of one call resemble each other."""
    rng = np.random.default_rng(5)
    truth = true_difference(50, 0.0)
    held = {True: 0, False: 0}
    for seed in range(100):
        before, after = times(rng, 15, 30), times(rng, 15, 30)
        for calls_drawn in held:
            sets = [
                each if calls_drawn else Sample.of(each.values, np.arange(each.size))
                for each in (before, after)
            ]
            found = percentile_differences(sets[0], sets[1], [50], replicates=200, seed=seed)[0]
            held[calls_drawn] += found.low <= truth <= found.high
    assert held[True] >= 90
    assert held[False] < 70


def test_no_change_is_called_a_change_only_as_often_as_said() -> None:
    rng = np.random.default_rng(11)
    verdicts = [
        percentile_differences(
            times(rng, 30, 8), times(rng, 30, 8), [50], replicates=300, seed=seed
        )[0].verdict
        for seed in range(150)
    ]
    assert sum(each in (Verdict.BETTER, Verdict.WORSE) for each in verdicts) <= 16


def test_a_large_change_is_seen_and_named() -> None:
    rng = np.random.default_rng(1)
    before, after = times(rng, 40, 10), times(rng, 40, 10, slower=0.5)
    assert one(before, after).verdict is Verdict.WORSE
    assert one(after, before).verdict is Verdict.BETTER
    assert one(before, after).low < true_difference(50, 0.5) < one(before, after).high


def test_a_difference_too_small_to_matter_is_none() -> None:
    rng = np.random.default_rng(2)
    names = np.repeat(np.arange(100), 20)
    before = Sample.of(rng.normal(200, 3, 2000), names)
    after = Sample.of(rng.normal(201, 3, 2000), names)
    found = one(before, after)
    assert found.low > 0
    assert found.verdict is Verdict.SAME


def test_the_same_values_twice_are_no_difference() -> None:
    sample = Sample.of(np.full(100, 20.0), np.arange(100))
    found = one(sample, sample, 95)
    assert (found.low, found.high, found.verdict) == (0, 0, Verdict.SAME)


@pytest.mark.parametrize("calls", [0, 1, MIN_CALLS - 1])
def test_few_calls_tell_nothing_however_many_utterances_they_hold(calls: int) -> None:
    rng = np.random.default_rng(3)
    few = times(rng, calls, 500) if calls else Sample.of(np.empty(0), np.empty(0, int))
    many = times(rng, 50, 10, slower=2)
    for found in (one(few, many), one(many, few)):
        assert found.verdict is Verdict.CANNOT_TELL
        assert not found.has_interval
        assert f"at least {MIN_CALLS}" in found.reason
    assert "No calls before" in one(few, many).reason or calls


def test_a_percentile_beyond_which_hardly_anything_lies_is_not_told() -> None:
    rng = np.random.default_rng(4)
    before, after = times(rng, 20, 5), times(rng, 20, 5, slower=1)
    middle, tail = percentile_differences(before, after, [50, 99])
    assert middle.verdict is Verdict.WORSE
    assert tail.verdict is Verdict.CANNOT_TELL
    assert "at or above p99" in tail.reason


def test_what_the_clocks_leave_open_is_no_change() -> None:
    rng = np.random.default_rng(6)
    names = np.repeat(np.arange(50), 10)
    before = Sample.of(rng.normal(10, 0.5, 500), names)
    after = Sample.of(rng.normal(13, 0.5, 500), names)
    assert one(before, after).verdict is Verdict.WORSE
    open_ = one(before, after, clock_ms=5)
    assert open_.verdict is Verdict.CANNOT_TELL
    assert "clocks" in open_.reason
    assert one(before, after, clock_ms=1).verdict is Verdict.WORSE


def test_missing_values_are_no_measurements() -> None:
    sample = Sample.of(np.array([1.0, np.nan, 3.0, np.inf]), np.array([7, 8, 9, 9]))
    assert sample.size == 2
    assert sample.call_count == 2


def test_bins_and_groups_of_many_calls_change_nothing_that_matters() -> None:
    rng = np.random.default_rng(8)
    calls, each = MAX_GROUPS * 4, 20
    assert calls * each > MAX_BINS
    before = times(rng, calls, each, of_calls=0.1)
    after = times(rng, calls, each, of_calls=0.1, slower=0.05)
    for found, percent in zip(
        percentile_differences(before, after, [50, 99]), (50, 99), strict=True
    ):
        errors = [np.std(_by_hand(each, percent, rng), ddof=1) for each in (before, after)]
        error = math.hypot(*map(float, errors))
        # The interval is as wide as that of a plain bootstrap of all calls and values.
        assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.25)


def _by_hand(sample: Sample, percent: float, rng: Rng) -> list[float]:
    rows = np.arange(sample.size).reshape(sample.call_count, -1)
    drawn = (rows[rng.integers(0, len(rows), len(rows))].reshape(-1) for _ in range(150))
    return [float(np.percentile(sample.values[each], percent)) for each in drawn]


def test_the_same_seed_gives_the_same_interval() -> None:
    rng = np.random.default_rng(9)
    before, after = times(rng, 20, 5), times(rng, 20, 5)
    assert one(before, after, seed=3) == one(before, after, seed=3)


def shares(rng: Rng, calls: int, each: int, share: float, spread: float) -> Sample:
    names = np.repeat(np.arange(calls), each)
    of_call = np.clip(rng.normal(share, spread, calls), 0, 1)[names]
    return Sample.of((rng.random(len(names)) < of_call).astype(float), names)


@pytest.mark.parametrize(("share", "spread"), [(0.5, 0.2), (0.9, 0.05), (0.98, 0.0)])
def test_intervals_of_shares_hold_the_truth_as_often_as_they_say(
    share: float, spread: float
) -> None:
    rng = np.random.default_rng(12)
    held = 0
    for _ in range(300):
        before = shares(rng, 40, 10, share, spread)
        after = shares(rng, 40, 10, share, spread)
        found = share_difference(before, after)
        held += found.low <= 0 <= found.high
    assert held >= 300 * 0.92


def test_what_never_happened_may_still_happen() -> None:
    """A bootstrap would say 0 ± 0 here."""
    never = Sample.of(np.ones(100), np.arange(100))
    found = share_difference(never, never)
    assert found.low < -0.02
    assert found.high > 0.02
    assert found.verdict is Verdict.CANNOT_TELL


def test_gaps_that_hang_together_say_less_than_scattered_ones() -> None:
    scattered = Sample.of(np.tile([0.0] + [1.0] * 9, 20), np.repeat(np.arange(20), 10))
    together = Sample.of(np.repeat([0.0] * 2 + [1.0] * 18, 10), np.repeat(np.arange(20), 10))
    widths = [
        (found := share_difference(each, each)).high - found.low for each in (scattered, together)
    ]
    assert widths[1] > 2 * widths[0]


def test_more_without_a_gap_is_better_and_more_failed_is_worse() -> None:
    few = Sample.of(np.tile([1.0] + [0.0] * 9, 40), np.repeat(np.arange(40), 10))
    many = Sample.of(np.tile([1.0] * 9 + [0.0], 40), np.repeat(np.arange(40), 10))
    assert share_difference(few, many).verdict is Verdict.BETTER
    assert share_difference(few, many, less_is_better=True).verdict is Verdict.WORSE


@pytest.mark.parametrize("degrees", [MIN_CALLS - 1, 10, 30, 1000])
@pytest.mark.parametrize("probability", [0.9, 0.975, 0.995])
def test_students_quantile_is_the_librarys(degrees: int, probability: float) -> None:
    expected = student_t.ppf(probability, degrees)
    assert student(probability, degrees) == pytest.approx(expected, rel=0.005)


@given(
    st.lists(st.tuples(st.floats(-1e12, 1e12), st.integers(0, 20)), max_size=80),
    st.lists(st.tuples(st.floats(-1e12, 1e12), st.integers(0, 20)), max_size=80),
)
@settings(max_examples=60, deadline=None)
def test_any_two_sets_get_an_ordered_interval_or_a_reason(
    before: list[tuple[float, int]], after: list[tuple[float, int]]
) -> None:
    samples = [
        Sample.of(
            np.array([value for value, _ in each], float), np.array([call for _, call in each], int)
        )
        for each in (before, after)
    ]
    for found in percentile_differences(samples[0], samples[1], (0, 50, 100), replicates=50):
        if found.has_interval:
            assert found.low <= found.change <= found.high
            assert not math.isnan(found.before)
        else:
            assert found.reason
            assert found.verdict is Verdict.CANNOT_TELL
