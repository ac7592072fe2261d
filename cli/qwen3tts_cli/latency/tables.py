"""Statistics of utterances: percentiles and counts (pure)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from qwen3tts_cli.latency.columns import Columns, Floats, NameColumn
from qwen3tts_cli.latency.stages import (
    CHAIN,
    FIRST_SOUND,
    GREETING,
    HEADLINES,
    SILENCE,
    WAIT,
    crosses_clocks,
    stage_name,
)
from qwen3tts_speech.latency import Mark

if TYPE_CHECKING:
    pass


Stage = tuple[Mark, Mark]
RowNumbers = NDArray[np.intp]
MIN_VALUES: Final = {95.0: 20, 99.0: 100}
"""Minimum values for each percentile; of fewer it is the maximum."""
MAX_NAMES: Final = 32
"""Names listed; a damaged log may have any number."""


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    count: int
    p50: float
    p95: float
    """NaN below 20 values."""
    p99: float
    """NaN below 100 values."""
    largest: float
    clock_error_ms: float | None = None
    """Median uncertainty across clocks; else None."""


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    utterances: int
    gapless_pct: float
    """NaN if none was played."""
    lead: Row
    """Wait if known, else first sound."""


@dataclass(frozen=True, slots=True)
class Summary:
    utterances: int
    calls: int
    played: int
    """With a frame on the wire."""
    gapless: int
    """Played without underrun."""
    interrupted: int
    starvations: int
    longest_gap_ms: float
    ends: dict[str, int]
    """By reason, at most `MAX_NAMES`; ``""`` = still open."""
    began_unix_s: float
    """First start; NaN if none, as the next."""
    ended_unix_s: float

    @property
    def gapless_pct(self) -> float:
        """Percentage played without underrun; NaN if none was played."""
        return 100 * self.gapless / self.played if self.played else math.nan


def summary(columns: Columns) -> Summary:
    played, started = columns.played, columns.started_unix_s
    return Summary(
        utterances=len(columns),
        calls=len(columns.call.counts()),
        played=int(played.sum()),
        gapless=int((played & (columns.starvations == 0)).sum()),
        interrupted=int(columns.has(Mark.INTERRUPTED).sum()),
        starvations=int(columns.starvations.sum(dtype=np.int64)),
        longest_gap_ms=float(columns.longest_gap_ms.max(initial=0.0)),
        ends=dict(list(columns.end_reason.counts().items())[:MAX_NAMES]),
        began_unix_s=float(started.min(initial=math.inf)) if len(started) else math.nan,
        ended_unix_s=float(started.max(initial=-math.inf)) if len(started) else math.nan,
    )


def percentile(values: Floats, percent: float) -> float:
    """Return the smallest value not below ``percent`` of all; NaN if empty."""
    if not len(values):
        return math.nan
    return float(np.percentile(values, percent, method="inverted_cdf"))


def stated(values: Floats, percent: float) -> float:
    """Return the percentile; NaN below `MIN_VALUES` values."""
    return percentile(values, percent) if len(values) >= MIN_VALUES.get(percent, 1) else math.nan


def row(name: str, values: Floats, clock_error_ms: float | None = None) -> Row:
    if not len(values):
        return Row(name, 0, math.nan, math.nan, math.nan, math.nan, clock_error_ms)
    p50, p95, p99 = (stated(values, percent) for percent in (50, 95, 99))
    return Row(name, len(values), p50, p95, p99, float(values.max()), clock_error_ms)


def headline_times(columns: Columns) -> dict[str, Floats]:
    """Return headline times [n]; NaN = missing."""
    greeting = columns.greeting
    found = {
        name: np.where(greeting, np.float32(np.nan), columns.between_ms(*marks))
        for name, marks in HEADLINES.items()
    }
    asked = columns.between_ms(Mark.TEXT_IN, Mark.FIRST_AUDIBLE_WIRE)
    found[GREETING] = np.where(greeting, asked, np.float32(np.nan))
    found[SILENCE] = columns.silence_ms
    return found


def lead_name(columns: Columns) -> str:
    return WAIT if columns.has_waits else FIRST_SOUND


def headline_values(columns: Columns) -> dict[str, Floats]:
    """Return headline times without NaN; empty ones are omitted."""
    found = headline_times(columns)
    present = {name: values[~np.isnan(values)] for name, values in found.items()}
    return {name: values for name, values in present.items() if len(values)}


def stage_rows(columns: Columns) -> dict[Stage, tuple[RowNumbers, Floats]]:
    """Return utterances and durations (ms) of each stage of `CHAIN`, between present marks."""
    found: dict[Stage, tuple[RowNumbers, Floats]] = {}
    before = np.full(len(columns), -1, np.int8)
    answers = columns.answers
    for place, mark in enumerate(CHAIN):
        present = columns.has(mark) & answers
        for earlier in range(place):
            rows = np.flatnonzero(present & (before == earlier))
            if len(rows):
                durations = columns.mark_ms[mark][rows] - columns.mark_ms[CHAIN[earlier]][rows]
                found[CHAIN[earlier], mark] = rows, durations
        before[present] = place
    return found


def stage_values(columns: Columns) -> dict[Stage, Floats]:
    return {stage: values for stage, (_, values) in stage_rows(columns).items()}


def headlines(columns: Columns) -> list[Row]:
    return [row(name, values) for name, values in headline_values(columns).items()]


def stages(columns: Columns) -> list[Row]:
    made = []
    for (first, last), (rows, values) in stage_rows(columns).items():
        error = None
        if crosses_clocks(first, last):
            error = percentile(columns.clock_error_ms[rows], 50)
        made.append(row(stage_name(first, last), values, error))
    return made


def groups(columns: Columns, by: NameColumn) -> list[Group]:
    """Return `Columns.lead_ms` and underruns by name, at most `MAX_NAMES`."""
    made = []
    lead_ms, called = columns.lead_ms, lead_name(columns)
    for name, count in list(by.counts().items())[:MAX_NAMES]:
        mine = by.where(name)
        values = lead_ms[mine]
        played = columns.played & mine
        gapless = int((columns.starvations[played] == 0).sum())
        share = 100 * gapless / int(played.sum()) if played.any() else math.nan
        values = values[~np.isnan(values)]
        made.append(Group(name, count, share, row(called, values)))
    return made
