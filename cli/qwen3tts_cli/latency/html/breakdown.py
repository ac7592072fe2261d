"""Wait or first sound by engine, voice, call, … (pure)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np

from qwen3tts_cli.latency.columns import Columns, Floats, NameColumn
from qwen3tts_cli.latency.tables import MIN_VALUES, RowNumbers, percentile, stated
from qwen3tts_cli.output.markup import count, number, text

MOST_ROWS: Final = 15


@dataclass(frozen=True, slots=True)
class Part:
    """Utterances of one name."""

    name: str
    utterances: int
    heard: int
    """Those with known `Columns.lead_ms`."""
    p50: float
    p95: float
    """Milliseconds; NaN with too few values."""
    gaps: int

    @property
    def reach(self) -> float:
        """p95 with enough utterances, else p50."""
        return self.p50 if np.isnan(self.p95) else self.p95


def parts(columns: Columns, by: NameColumn) -> list[Part]:
    names = len(by.names)
    utterances = np.bincount(by.codes, minlength=names)
    gaps = np.bincount(by.codes, weights=columns.starvations, minlength=names).astype(np.int64)
    first = columns.lead_ms
    heard = np.flatnonzero(np.isfinite(first))
    order = heard[np.lexsort((first[heard], by.codes[heard]))]
    values = first[order]
    known = np.bincount(by.codes[order], minlength=names)
    begin = np.concatenate([[0], np.cumsum(known)[:-1]])
    p50, p95 = (_ranked(values, begin, known, percent) for percent in (50, 95))
    p95[known < MIN_VALUES[95]] = np.nan
    made = [
        Part(
            by.names[at],
            int(utterances[at]),
            int(known[at]),
            float(p50[at]),
            float(p95[at]),
            int(gaps[at]),
        )
        for at in range(names)
        if utterances[at]
    ]
    return sorted(made, key=lambda part: (-part.reach if part.heard else np.inf, part.name))


def _ranked(
    values: np.ndarray[tuple[int], np.dtype[np.float32]],
    begin: np.ndarray[tuple[int], np.dtype[np.int64]],
    known: np.ndarray[tuple[int], np.dtype[np.int64]],
    percent: float,
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    rank = np.maximum(np.ceil(known * percent / 100).astype(np.int64), 1) - 1
    found = np.full(len(known), np.nan)
    there = known > 0
    found[there] = values[(begin + rank)[there]]
    return found


def breakdown(columns: Columns) -> str:
    kinds = {
        "Engine": columns.engine,
        "Voice": columns.voice,
        "Line": columns.line,
        "Codec": columns.codec,
        "End of turn": columns.rule,
        "Call": columns.call,
        "End": columns.end_reason,
        "Log": columns.source,
    }
    made = {label: parts(columns, by) for label, by in kinds.items()}
    shown = {label: found for label, found in made.items() if len(found) > 1}
    if not shown:
        return '<p class="muted">All are of one engine, voice, line and call.</p>'
    tabs, panels = [], []
    lead = "caller's wait" if columns.has_waits else "first sound"
    for place, (label, found) in enumerate(shown.items()):
        selected = "true" if place == 0 else "false"
        tabs.append(
            f'<button type="button" role="tab" id="tab-{place}" aria-controls="part-{place}"'
            f' aria-selected="{selected}" tabindex="{0 if place == 0 else -1}">{text(label)}'
            f"<span>{count(len(found))}</span></button>"
        )
        hidden = "" if place == 0 else " hidden"
        panels.append(
            f'<div role="tabpanel" id="part-{place}" aria-labelledby="tab-{place}"{hidden}>'
            f"{_table(label, found, lead)}</div>"
        )
    return (
        f'<div class="tabs" role="tablist" aria-label="By">{"".join(tabs)}</div>{"".join(panels)}'
    )


def _table(label: str, found: list[Part], lead: str) -> str:
    scale = max((part.reach for part in found if part.heard), default=0.0) or 1.0
    lines = []
    for part in found[:MOST_ROWS]:
        p50, p95 = (
            100 * max(0.0, value) / scale if part.heard else 0.0 for value in (part.p50, part.reach)
        )
        lines.append(
            f'<tr><th scope="row">{text(part.name or "(no name)")}</th>'
            '<td class="reach-cell"><div class="reach accent">'
            f'<i style="width:{p95:.2f}%"></i><b style="width:{p50:.2f}%"></b></div></td>'
            f"<td>{number(part.p50)}</td><td>{number(part.p95)}</td>"
            f'<td class="{"warn" if part.gaps else ""}">{count(part.gaps)}</td>'
            f"<td>{count(part.utterances)}</td></tr>"
        )
    rest = len(found) - MOST_ROWS
    more = f'<p class="muted">… and {count(rest)} faster ones.</p>' if rest > 0 else ""
    return (
        f'<div class="scroll"><table class="parts"><thead><tr><th scope="col">{text(label.lower())}'
        f'</th><th scope="col" class="reach-head">{lead}, p50 and p95</th>'
        '<th scope="col">p50</th><th scope="col">p95</th><th scope="col">gaps</th>'
        f'<th scope="col">n</th></tr></thead><tbody>{"".join(lines)}</tbody></table></div>{more}'
    )


MOST_BINS: Final = 96
UTTERANCES_A_BIN: Final = 6
"""Minimum on average, for meaningful percentiles."""
MOST_POINTS: Final = 1500
STEPS_S: Final = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 10_800, 21_600, 43_200, 86_400),
)
"""Bin widths; beyond them whole days."""
LATEST_S: Final = 253_402_214_400.0
"""9999-12-31, bound of dates in damaged logs."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Time bins and single utterances; empty bins break the lines."""

    bin_s: float
    bin_times: list[str]
    """Middle of each bin, UTC."""
    p50: list[float]
    """`Columns.lead_ms`; NaN in empty bins."""
    p95: list[float]
    """NaN below 20 values."""
    gaps: list[int]
    longest_gap_ms: list[float]
    point_times: list[str]
    point_ms: list[float]
    all_points: bool
    """Whether all utterances are points, not only the slowest and a sample."""
    undated: int
    """Excluded utterances without a usable time."""


def timeline(columns: Columns, *, seed: int = 0) -> Timeline:
    """Return the timeline; ``seed`` is the sample's."""
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
    for place, bin_number in enumerate(numbers):
        if place and bin_number != numbers[place - 1] + 1:
            _add_bin(made, origin + (numbers[place - 1] + 1.5) * width)
        mine = rows[places == place]
        times = lead_ms[mine]
        times = times[np.isfinite(times)]
        p50, p95 = percentile(times, 50), stated(times, 95)
        _add_bin(
            made,
            origin + (bin_number + 0.5) * width,
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
        [plotly_time(float(at)) for at in started[shown]],
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
    made.bin_times.append(plotly_time(min(at, LATEST_S)))
    made.p50.append(p50)
    made.p95.append(p95)
    made.gaps.append(gaps)
    made.longest_gap_ms.append(longest_gap_ms)


def _thinned(rows: RowNumbers, ms: Floats, seed: int) -> RowNumbers:
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


def plotly_time(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
