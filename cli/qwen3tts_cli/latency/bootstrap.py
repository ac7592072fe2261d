"""Differences between two sets of measurements with confidence intervals (pure).

Utterances of a call correlate, so whole calls are resampled (cluster bootstrap). Shares use
Newcombe's score interval with the clusters' effective sample size, since resampling cannot show
unseen events. Without enough data there is no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from qwen3tts_cli.latency.tables import MIN_VALUES

LEVEL = 0.95
"""Confidence level."""
REPLICATES = 2000
MIN_CALLS = 8
"""Fewer calls in a set give no interval."""
MIN_BEYOND = 5
"""Utterances, of as many calls, needed on each side of a percentile."""
MAX_GROUPS = 128
"""More calls are resampled in random groups; the interval is the same."""
MAX_BINS = 1024
"""More values are counted in bins of equal count."""
BLOCK = 250
"""Replicates per batch; bounds memory."""
SAME_MS = 1.0
"""Smaller differences, or below `SAME_PART` of the time, are irrelevant."""
SAME_PART = 0.02
SAME_SHARE = 0.005


class Verdict(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    SAME = "no difference"
    """The whole interval is irrelevant."""
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True)
class Sample:
    values: NDArray[np.float64]
    """``[n]``, finite."""
    calls: NDArray[np.int64]
    """``[n]``: call numbers from 0 without holes."""

    @classmethod
    def of(cls, values: NDArray[np.floating], calls: NDArray[np.integer]) -> Sample:
        there = np.isfinite(values)
        _, dense = np.unique(np.asarray(calls)[there], return_inverse=True)
        return cls(np.asarray(values, np.float64)[there], dense.reshape(-1).astype(np.int64))

    @property
    def size(self) -> int:
        return len(self.values)

    @property
    def call_count(self) -> int:
        return int(self.calls.max()) + 1 if self.size else 0

    def percentile(self, percent: float) -> float:
        """Return the smallest value not below ``percent`` of all; NaN if empty."""
        if not self.size:
            return math.nan
        return float(np.percentile(self.values, percent, method="inverted_cdf"))

    def mean(self) -> float:
        """Mean; NaN if empty."""
        return float(self.values.mean()) if self.size else math.nan


@dataclass(frozen=True, slots=True)
class Difference:
    before: float
    after: float
    low: float
    """Bounds of ``after - before``; NaN with a `reason`."""
    high: float
    level: float
    utterances: tuple[int, int]
    calls: tuple[int, int]
    verdict: Verdict
    reason: str = ""
    """Reason for no interval; else empty."""

    @property
    def change(self) -> float:
        return self.after - self.before

    @property
    def has_interval(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)


def percentile_differences(
    before: Sample,
    after: Sample,
    percents: Sequence[float],
    *,
    level: float = LEVEL,
    clock_ms: float = 0.0,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> list[Difference]:
    """Compare percentiles of times; less is better.

    ``clock_ms``, the clock uncertainty, shifts all values alike: more calls do not average it
    out.
    """
    reasons = [_too_little(before, after, percent) for percent in percents]
    draws: NDArray[np.float64] | None = None
    if not all(reasons):
        rng = np.random.default_rng(seed)
        draws = _drawn(after, percents, replicates, rng) - _drawn(before, percents, replicates, rng)
    found = []
    for place, (percent, reason) in enumerate(zip(percents, reasons, strict=True)):
        was, is_now = (
            each.percentile(percent) if each.size >= MIN_VALUES.get(percent, 1) else math.nan
            for each in (before, after)
        )
        low = high = math.nan
        if draws is not None and not reason:
            low, high = _interval(draws[:, place], level, _degrees(before, after))
            # Percentiles are steps: the estimate itself may lie at the rim of its replicates.
            low, high = min(low, is_now - was), max(high, is_now - was)
        matters = max(SAME_MS, SAME_PART * abs(was)) if math.isfinite(was) else SAME_MS
        verdict = _verdict((low, high), reason, slack=clock_ms, matters=matters)
        found.append(_difference((before, after), (was, is_now), (low, high), level, verdict))
    return found


def share_difference(
    before: Sample, after: Sample, *, level: float = LEVEL, less_is_better: bool = False
) -> Difference:
    """Compare the share of ones, from -1 to 1."""
    was, is_now = before.mean(), after.mean()
    reason = _too_few_calls(before, after)
    low = high = math.nan
    if not reason:
        t = student(0.5 + level / 2, _degrees(before, after))
        sizes = _effective(before, after)
        low_before, high_before = _wilson(was, sizes[0], t)
        low_after, high_after = _wilson(is_now, sizes[1], t)
        change = is_now - was
        low = change - math.hypot(is_now - low_after, high_before - was)
        high = change + math.hypot(high_after - is_now, was - low_before)
    verdict = _verdict((low, high), reason, matters=SAME_SHARE, less_is_better=less_is_better)
    return _difference((before, after), (was, is_now), (low, high), level, verdict)


def _verdict(
    interval: tuple[float, float],
    reason: str,
    *,
    matters: float,
    slack: float = 0.0,
    less_is_better: bool = True,
) -> tuple[Verdict, str]:
    low, high = interval
    if reason:
        return Verdict.CANNOT_TELL, reason
    low_sure, high_sure = low - slack, high + slack
    if max(abs(low_sure), abs(high_sure)) <= matters:
        return Verdict.SAME, ""
    if low_sure > 0:
        return Verdict.WORSE if less_is_better else Verdict.BETTER, ""
    if high_sure < 0:
        return Verdict.BETTER if less_is_better else Verdict.WORSE, ""
    if low > 0 or high < 0:
        reason = f"The clocks of client and server may be off by {slack:.1f} ms."
    return Verdict.CANNOT_TELL, reason


def _difference(
    samples: tuple[Sample, Sample],
    values: tuple[float, float],
    interval: tuple[float, float],
    level: float,
    verdict: tuple[Verdict, str],
) -> Difference:
    before, after = samples
    return Difference(
        *values,
        *interval,
        level,
        (before.size, after.size),
        (before.call_count, after.call_count),
        *verdict,
    )


def _too_few_calls(before: Sample, after: Sample) -> str:
    for name, sample in (("before", before), ("after", after)):
        if (calls := sample.call_count) < MIN_CALLS:
            what = "1 call" if calls == 1 else f"{calls or 'no'} calls"
            return f"Only {what} {name}: at least {MIN_CALLS} are needed.".replace("Only no", "No")
    return ""


def _too_little(before: Sample, after: Sample, percent: float) -> str:
    if reason := _too_few_calls(before, after):
        return reason
    for name, sample in (("before", before), ("after", after)):
        value = sample.percentile(percent)
        for side, beyond in (
            ("at or above", sample.values >= value),
            ("at or below", sample.values <= value),
        ):
            count, calls = int(beyond.sum()), int((np.bincount(sample.calls[beyond]) > 0).sum())
            if min(count, calls) < MIN_BEYOND:
                return (
                    f"Too few {name}: {_counted(count, 'utterance')} of {_counted(calls, 'call')}"
                    f" {'lies' if count == 1 else 'lie'} {side} p{percent:g},"
                    f" {MIN_BEYOND} of {MIN_BEYOND} calls are needed."
                )
    return ""


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _degrees(before: Sample, after: Sample) -> int:
    return min(before.call_count, after.call_count) - 1


def _drawn(
    sample: Sample, percents: Sequence[float], replicates: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Bootstrap percentiles ``[replicates, percents]`` of resampled calls."""
    calls = sample.call_count
    groups = min(calls, MAX_GROUPS)
    group = (rng.permutation(calls) % groups)[sample.calls]
    order = np.argsort(sample.values, kind="stable")
    ordered = sample.values[order]
    bins = min(sample.size, MAX_BINS)
    # Bin k holds the ordered values from first[k] to before first[k + 1].
    first = np.arange(bins + 1) * sample.size // bins
    of_value = np.repeat(np.arange(bins), np.diff(first))
    lows = ordered[first[:-1]]
    highs = ordered[first[1:] - 1]
    counts = np.bincount(group[order] * bins + of_value, minlength=groups * bins)
    table = counts.reshape(groups, bins).astype(np.float32)
    found = np.empty((replicates, len(percents)))
    for start in range(0, replicates, BLOCK):
        block = min(BLOCK, replicates - start)
        weights = rng.multinomial(groups, np.full(groups, 1 / groups), size=block)
        drawn = weights.astype(np.float32) @ table
        sums = np.cumsum(drawn, axis=1, dtype=np.float64)
        rows = np.arange(block)
        # All rows as one ascending line, so that one search finds the place in each.
        lift = rows * (float(sums[:, -1].max()) + 1)
        line = (sums + lift[:, None]).reshape(-1)
        for place, percent in enumerate(percents):
            # The first bin that reaches the rank; sums are whole numbers, so a hair is enough.
            wanted = sums[:, -1] * percent / 100
            at = np.searchsorted(line, wanted + lift - 1e-6) - rows * bins
            at = np.clip(at, 0, bins - 1)
            inside = drawn[rows, at]
            into = 1 - (sums[rows, at] - wanted) / np.maximum(inside, 1)
            spread = highs[at] - lows[at]
            found[start : start + block, place] = lows[at] + spread * np.clip(into, 0, 1)
    return found


def _interval(draws: NDArray[np.float64], level: float, degrees: int) -> tuple[float, float]:
    """Percentile interval, widened for few calls (Hesterberg 2015, section 5.3)."""
    calls = degrees + 1
    t = student(0.5 + level / 2, degrees)
    outside = NormalDist().cdf(-math.sqrt(calls / degrees) * t)
    low, high = np.quantile(draws, [outside, 1 - outside])
    return float(low), float(high)


def _wilson(share: float, size: float, z: float) -> tuple[float, float]:
    middle = (share + z * z / (2 * size)) / (1 + z * z / size)
    half = z / (1 + z * z / size) * math.sqrt(share * (1 - share) / size + z * z / (4 * size**2))
    # The ends are exact where nothing, or everything, happened.
    return min(share, max(0.0, middle - half)), max(share, min(1.0, middle + half))


def _effective(before: Sample, after: Sample) -> tuple[float, float]:
    effects = [effect for each in (before, after) if (effect := _design_effect(each)) is not None]
    if not effects:
        return float(before.call_count), float(after.call_count)
    effect = max(1.0, *effects)
    return (
        max(float(before.call_count), before.size / effect),
        max(float(after.call_count), after.size / effect),
    )


def _design_effect(sample: Sample) -> float | None:
    share, size, calls = sample.mean(), sample.size, sample.call_count
    plain = share * (1 - share) / size
    if plain <= 0:
        return None
    sums = np.bincount(sample.calls, weights=sample.values - share)
    return float(calls / (calls - 1) * (sums**2).sum() / size**2 / plain)


def student(probability: float, degrees: int) -> float:
    """Student's t quantile by expansion in 1/degrees; within 0.5 % from 5 degrees on."""
    z = NormalDist().inv_cdf(probability)
    return (
        z
        + (z**3 + z) / (4 * degrees)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * degrees**3)
    )
