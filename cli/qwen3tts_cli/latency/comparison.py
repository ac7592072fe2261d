"""Comparison of two sets of utterances, such as before and after a change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from qwen3tts_cli.latency.bootstrap import (
    Difference,
    Sample,
    Verdict,
    percentile_differences,
    share_difference,
)
from qwen3tts_cli.latency.columns import Columns, InMemory, NameColumn
from qwen3tts_cli.latency.hops import hops_of, names_of
from qwen3tts_cli.latency.tables import RowNumbers, headline_times, percentile
from qwen3tts_cli.output.console import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PERCENTS: Final = (50.0, 95.0)
HEADLINE_LEVEL: Final = 0.95
HOP_LEVEL: Final = 0.99
"""Wider confidence level of hops, against multiple comparisons."""
MIX_MATTERS: Final = 0.1
"""Share of utterances with another voice that is reported."""


class RowKind(StrEnum):
    HEADLINE = "headline"
    SHARE = "share"
    HOP = "hop"


@dataclass(frozen=True, slots=True)
class ComparedQuantity:
    """One quantity in both sets."""

    kind: RowKind
    name: str
    what: str
    """``p50``, ``p95``, or ``share``."""
    unit: str
    """``ms``, or ``%`` (differences in percentage points)."""
    difference: Difference
    marks: str = ""
    """Marks of a hop."""
    clock_ms: float = 0.0
    """Combined clock uncertainty, included in the verdict."""

    def in_unit(self, value: float) -> float:
        return value * 100 if self.unit == "%" else value


@dataclass(frozen=True, slots=True)
class SetFacts:
    utterances: int
    calls: int
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Differences between two sets."""

    before: SetFacts
    after: SetFacts
    rows: list[ComparedQuantity]
    remarks: list[str] = field(default_factory=list)
    """Caveats, whole sentences."""

    def of(self, *kinds: RowKind) -> list[ComparedQuantity]:
        return [row for row in self.rows if row.kind in kinds]

    def to_json(self) -> list[dict[str, object]]:
        """Return the rows in JSON types; NaN is null."""

        def known(row: ComparedQuantity, value: float) -> float | None:
            return round(row.in_unit(value), 4) if np.isfinite(value) else None

        return [
            {
                "kind": str(row.kind),
                "name": row.name,
                "marks": row.marks,
                "what": row.what,
                "unit": row.unit,
                "before": known(row, row.difference.before),
                "after": known(row, row.difference.after),
                "change": known(row, row.difference.change),
                "low": known(row, row.difference.low),
                "high": known(row, row.difference.high),
                "level": row.difference.level,
                "clock_ms": round(row.clock_ms, 4),
                "verdict": str(row.difference.verdict),
                "reason": row.difference.reason,
                "utterances": list(row.difference.utterances),
                "calls": list(row.difference.calls),
            }
            for row in self.rows
        ]


def compare(before: Columns, after: Columns, *, seed: int = 0) -> Comparison:
    """Compare two sets; ``seed`` is the bootstrap's."""
    calls = calls_of(before), calls_of(after)
    rows = _headlines(before, after, calls, seed)
    rows += _shares(before, after, calls)
    rows += _hops(before, after, calls, seed)
    return Comparison(
        _facts(before, calls[0]), _facts(after, calls[1]), rows, _remarks(before, after, rows)
    )


Calls = tuple[NDArray[np.int64], NDArray[np.int64]]


def calls_of(columns: Columns) -> NDArray[np.int64]:
    """Return the call number of each utterance [n]; an unnamed call is its own."""
    codes = columns.call.codes.astype(np.int64)
    if "" in columns.call.names:
        nameless = np.flatnonzero(columns.call.where(""))
        codes[nameless] = len(columns.call.names) + nameless
    return codes


def _facts(columns: Columns, calls: NDArray[np.int64]) -> SetFacts:
    sources = tuple(columns.source.counts())
    return SetFacts(len(columns), len(np.unique(calls)), sources)


def _headlines(before: Columns, after: Columns, calls: Calls, seed: int) -> list[ComparedQuantity]:
    old, new = headline_times(before), headline_times(after)
    found = []
    for name, is_now in new.items():
        was = old[name]
        samples = Sample.of(was, calls[0]), Sample.of(is_now, calls[1])
        if samples[0].size or samples[1].size:
            for percent, difference in zip(
                PERCENTS,
                percentile_differences(*samples, PERCENTS, level=HEADLINE_LEVEL, seed=seed),
                strict=True,
            ):
                found.append(
                    ComparedQuantity(RowKind.HEADLINE, name, f"p{percent:g}", "ms", difference)
                )
    return found


def _shares(before: Columns, after: Columns, calls: Calls) -> list[ComparedQuantity]:
    def sample(place: int, of: NDArray[np.bool_], among: NDArray[np.bool_]) -> Sample:
        values = np.where(among, of.astype(np.float64), np.nan)
        return Sample.of(values, calls[place])

    sets = (before, after)
    gapless = [sample(at, each.starvations == 0, each.played) for at, each in enumerate(sets)]
    everything = [np.ones(len(each), np.bool_) for each in sets]
    failed = [
        sample(at, each.end_reason.where("failed"), everything[at]) for at, each in enumerate(sets)
    ]
    found = []
    for name, samples, less_is_better in (
        ("without a gap", gapless, False),
        ("failed", failed, True),
    ):
        if any(each.values.any() for each in samples):
            difference = share_difference(
                *samples, level=HEADLINE_LEVEL, less_is_better=less_is_better
            )
            found.append(ComparedQuantity(RowKind.SHARE, name, "share", "%", difference))
    return found


def _hops(before: Columns, after: Columns, calls: Calls, seed: int) -> list[ComparedQuantity]:
    was, is_now = hops_of(before), hops_of(after)
    found = []
    called = names_of({**was, **is_now})
    for hop in [each for each in was if each in is_now]:
        (rows_before, ms_before), (rows_after, ms_after) = was[hop], is_now[hop]
        samples = (
            Sample.of(ms_before, calls[0][rows_before]),
            Sample.of(ms_after, calls[1][rows_after]),
        )
        clock_ms = 0.0
        if hop.crosses_clocks:
            clock_ms = _clock(before, rows_before) + _clock(after, rows_after)
        for percent, difference in zip(
            PERCENTS,
            percentile_differences(
                *samples, PERCENTS, level=HOP_LEVEL, clock_ms=clock_ms, seed=seed
            ),
            strict=True,
        ):
            found.append(
                ComparedQuantity(
                    RowKind.HOP, called[hop], f"p{percent:g}", "ms", difference, hop.marks, clock_ms
                )
            )
    return found


def _clock(columns: Columns, rows: RowNumbers) -> float:
    return percentile(columns.clock_error_ms[rows], 50) if len(rows) else 0.0


def _remarks(before: Columns, after: Columns, rows: list[ComparedQuantity]) -> list[str]:
    remarks = []
    if both := _in_both(before, after):
        remarks.append(f"{both} utterances stand in both sets.")
    for what, names in (
        ("engine", (before.engine, after.engine)),
        ("voice", (before.voice, after.voice)),
        ("line", (before.line, after.line)),
        ("codec", (before.codec, after.codec)),
    ):
        if (moved := _moved(*names)) > MIX_MATTERS:
            remarks.append(
                f"The sets differ in {what} for {moved:.0%} of their utterances:"
                f" a difference in time may come from that."
            )
    only = set(hops_of(before)) ^ set(hops_of(after))
    if only:
        remarks.append(
            "In one set only, and so not compared: "
            + ", ".join(sorted(f"{hop.marks}" for hop in only))
            + "."
        )
    hops = [row for row in rows if row.kind is RowKind.HOP and row.difference.has_interval]
    if any(row.difference.verdict in (Verdict.BETTER, Verdict.WORSE) for row in hops):
        remarks.append(
            f"Of {len(hops)} intervals of hops at {HOP_LEVEL:.0%} about"
            f" {len(hops) * (1 - HOP_LEVEL):.1f} miss the truth by chance."
        )
    return remarks


def _in_both(before: Columns, after: Columns) -> int:
    shared = {each.name for each in before.sources} & {each.name for each in after.sources}
    return sum(
        len(
            np.intersect1d(
                before.offset[before.source.where(name)], after.offset[after.source.where(name)]
            )
        )
        for name in shared - {InMemory.name}
    )


def _moved(before: NameColumn, after: NameColumn) -> float:
    shares: list[Mapping[str, float]] = []
    for each in (before, after):
        counts = each.counts()
        whole = sum(counts.values()) or 1
        shares.append({name: count / whole for name, count in counts.items()})
    names = set(shares[0]) | set(shares[1])
    return sum(abs(shares[0].get(name, 0) - shares[1].get(name, 0)) for name in names) / 2


NOTHING: Final = "-"


_STYLES: Final = {
    Verdict.BETTER: "green",
    Verdict.WORSE: "red",
    Verdict.SAME: "",
    Verdict.CANNOT_TELL: "dim",
}


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Print headlines, hops, then reasons for missing verdicts."""
    before, after = comparison.before, comparison.after
    console.print(
        f"Before: {before.utterances} utterances of {before.calls} calls."
        f" After: {after.utterances} of {after.calls}.",
        markup=False,
    )
    console.print(
        _table("Before and after, 95 % intervals", comparison.of(RowKind.HEADLINE, RowKind.SHARE))
    )
    if hops := comparison.of(RowKind.HOP):
        console.print(_table("The hops, 99 % intervals", hops))
    for line in notes_of(comparison):
        console.print(printable(line), markup=False)


def notes_of(comparison: Comparison) -> list[str]:
    remarks = list(comparison.remarks)
    reasons: dict[str, list[str]] = {}
    for row in comparison.rows:
        if row.difference.reason:
            reasons.setdefault(row.difference.reason, []).append(f"{row.name} ({row.what})")
    for reason, names in reasons.items():
        of = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        remarks.append(f"Cannot tell, {of}: {reason}")
    return remarks


def _table(title: str, rows: Iterable[ComparedQuantity]) -> Table:
    from rich.table import Table

    shown = Table(title=title, title_justify="left")
    shown.add_column("", overflow="fold")
    shown.add_column("", no_wrap=True)
    for heading in ("before", "after", "change", "from … to"):
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column("", no_wrap=True)
    previous = ""
    for row in rows:
        found = row.difference
        shown.add_row(
            row.name if row.name != previous else "",
            row.what if row.unit == "ms" else "%",
            _number(row, found.before),
            _number(row, found.after),
            _signed(row, found.change),
            f"{_signed(row, found.low)} … {_signed(row, found.high)}"
            if found.has_interval
            else NOTHING,
            word(row),
            style=_STYLES[found.verdict],
        )
        previous = row.name
    return shown


def word(row: ComparedQuantity) -> str:
    verdict = row.difference.verdict
    if row.unit == "ms":
        return {Verdict.BETTER: "faster", Verdict.WORSE: "slower"}.get(verdict, str(verdict))
    return str(verdict)


def _number(row: ComparedQuantity, value: float) -> str:
    return NOTHING if math.isnan(value) else f"{row.in_unit(value):.1f}"


def _signed(row: ComparedQuantity, value: float) -> str:
    return NOTHING if math.isnan(value) else f"{round(row.in_unit(value), 1) + 0.0:+.1f}"
