"""Waits or first sounds, and gaps, over time, in as many points as a page can hold (pure)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np

from qwen3tts_cli.latency.columns import Columns, Floats
from qwen3tts_cli.latency.tables import RowNumbers, percentile, stated

MOST_BINS: Final = 96
UTTERANCES_A_BIN: Final = 6
"""On average, at least: percentiles of fewer say nothing."""
MOST_POINTS: Final = 1500
STEPS_S: Final = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 10_800, 21_600, 43_200, 86_400),
)
"""Widths that people read easily; beyond them whole days."""
LATEST_S: Final = 253_402_214_400.0
"""9999-12-31: a damaged log may hold any time; later than this there is no date."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Bins of time, and single utterances. A bin without an utterance breaks the lines."""

    bin_s: float
    bin_times: list[str]
    """Middle of each bin, UTC."""
    p50: list[float]
    """`Columns.lead_ms`; NaN where the bin has none."""
    p95: list[float]
    """NaN where the bin has fewer than 20."""
    gaps: list[int]
    longest_gap_ms: list[float]
    point_times: list[str]
    point_ms: list[float]
    all_points: bool
    """Whether every utterance is a point; else the slowest of each bin and a sample are."""
    undated: int
    """Utterances without a usable time; they are not in here."""


def timeline(columns: Columns, *, seed: int = 0) -> Timeline:
    """The course of a log; ``seed`` chooses the sample."""
    started, lead_ms = columns.started_unix_s, columns.lead_ms
    dated = (started > 0) & (started < LATEST_S)
    undated = int((~dated).sum())
    if not dated.any():
        return Timeline(1.0, [], [], [], [], [], [], [], True, undated)
    begin, end = float(started[dated].min()), float(started[dated].max())
    width = _width(end - begin, int(dated.sum()))
    origin = math.floor(begin / width) * width
    rows = np.flatnonzero(dated)
    bins = ((started[rows] - origin) // width).astype(np.int64)
    numbers, places = np.unique(bins, return_inverse=True)
    made = Timeline(float(width), [], [], [], [], [], [], [], True, undated)
    for place, number in enumerate(numbers):
        if place and number != numbers[place - 1] + 1:
            _add_bin(made, origin + (numbers[place - 1] + 1.5) * width)
        mine = rows[places == place]
        times = lead_ms[mine]
        times = times[np.isfinite(times)]
        p50, p95 = percentile(times, 50), stated(times, 95)
        _add_bin(
            made,
            origin + (number + 0.5) * width,
            p50,
            p95,
            int(columns.starvations[mine].sum(dtype=np.int64)),
            float(columns.longest_gap_ms[mine].max()),
        )
    shown = rows[np.isfinite(lead_ms[rows])]
    everything = len(shown) <= MOST_POINTS
    if not everything:
        shown = _thinned(shown, lead_ms[shown], seed)
    shown = shown[np.argsort(started[shown], kind="stable")]
    return Timeline(
        made.bin_s,
        made.bin_times,
        made.p50,
        made.p95,
        made.gaps,
        made.longest_gap_ms,
        [moment(float(at)) for at in started[shown]],
        [float(ms) for ms in lead_ms[shown]],
        everything,
        undated,
    )


def _add_bin(
    made: Timeline,
    at: float,
    p50: float = math.nan,
    p95: float = math.nan,
    gaps: int = 0,
    longest_gap_ms: float = 0.0,
) -> None:
    made.bin_times.append(moment(min(at, LATEST_S)))
    made.p50.append(p50)
    made.p95.append(p95)
    made.gaps.append(gaps)
    made.longest_gap_ms.append(longest_gap_ms)


def _thinned(rows: RowNumbers, ms: Floats, seed: int) -> RowNumbers:
    """The slowest, of which none may be hidden, and a fair sample of the rest."""
    order = np.argsort(ms, kind="stable")
    slowest, rest = order[-MOST_POINTS // 5 :], order[: -MOST_POINTS // 5]
    sample = np.random.default_rng(seed).choice(
        rest, MOST_POINTS - len(slowest), replace=False, shuffle=False
    )
    thinned: RowNumbers = rows[np.concatenate([slowest, sample])]
    return thinned


def _width(span_s: float, utterances: int) -> float:
    most = max(2, min(MOST_BINS, utterances // UTTERANCES_A_BIN))
    for step in STEPS_S:
        if span_s / step <= most - 1:
            return float(step)
    return math.ceil(span_s / (most - 1) / 86_400) * 86_400.0


def moment(unix_s: float) -> str:
    """A time in UTC as plotly reads it, to the millisecond."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
