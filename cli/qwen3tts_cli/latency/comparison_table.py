"""A comparison of two sets as tables in the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from qwen3tts_cli.latency.compared import Compared, Comparison, Kind
from qwen3tts_cli.latency.comparison import Verdict
from qwen3tts_cli.output import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

NOTHING: Final = "-"
_STYLES: Final = {
    Verdict.BETTER: "green",
    Verdict.WORSE: "red",
    Verdict.SAME: "",
    Verdict.CANNOT_TELL: "dim",
}


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Print it: what matters first, then the hops, then why something cannot be told."""
    before, after = comparison.before, comparison.after
    console.print(
        f"Before: {before.utterances} utterances of {before.calls} calls."
        f" After: {after.utterances} of {after.calls}.",
        markup=False,
    )
    console.print(
        _table("Before and after, 95 % intervals", comparison.of(Kind.HEADLINE, Kind.SHARE))
    )
    if hops := comparison.of(Kind.HOP):
        console.print(_table("The hops, 99 % intervals", hops))
    for line in notes_of(comparison):
        console.print(printable(line), markup=False)


def notes_of(comparison: Comparison) -> list[str]:
    """Remarks, and each reason why something cannot be told once."""
    told = list(comparison.remarks)
    reasons: dict[str, list[str]] = {}
    for row in comparison.rows:
        if row.difference.reason:
            reasons.setdefault(row.difference.reason, []).append(f"{row.name} ({row.what})")
    for reason, names in reasons.items():
        of = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        told.append(f"Cannot tell, {of}: {reason}")
    return told


def _table(title: str, rows: Iterable[Compared]) -> Table:
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
            f"{_signed(row, found.low)} … {_signed(row, found.high)}" if found.told else NOTHING,
            word(row),
            style=_STYLES[found.verdict],
        )
        previous = row.name
    return shown


def word(row: Compared) -> str:
    """The verdict, said of a time as faster and slower."""
    verdict = row.difference.verdict
    if row.unit == "ms":
        return {Verdict.BETTER: "faster", Verdict.WORSE: "slower"}.get(verdict, str(verdict))
    return str(verdict)


def _number(row: Compared, value: float) -> str:
    return NOTHING if math.isnan(value) else f"{row.in_unit(value):.1f}"


def _signed(row: Compared, value: float) -> str:
    return NOTHING if math.isnan(value) else f"{round(row.in_unit(value), 1) + 0.0:+.1f}"
