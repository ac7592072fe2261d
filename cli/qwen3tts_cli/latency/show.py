"""Terminal report: waterfalls of utterances and tables (pure)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from qwen3tts_cli.latency import tables
from qwen3tts_cli.latency.columns import Columns, NameColumn
from qwen3tts_cli.latency.options import Views
from qwen3tts_cli.latency.order import disorder
from qwen3tts_cli.latency.selection import typical, values_of, worst
from qwen3tts_cli.latency.stages import OF_SERVER, crosses_clocks
from qwen3tts_cli.latency.tables import Group, Row, Summary
from qwen3tts_cli.output.console import printable
from qwen3tts_speech.latency import Mark, UtteranceRecord

if TYPE_CHECKING:
    from qwen3tts_cli.latency.comparison import Comparison


NAME_WIDTH = 20
TIME_WIDTH = 11
ORDER = {str(mark): place for place, mark in enumerate(Mark)}
"""Order of simultaneous marks."""


def waterfall(record: UtteranceRecord, width: int = 100) -> list[str]:
    """Return lines of at most ``width`` columns: a bar per stage, named after its final mark.

    The axis ends with the first sound; later marks have times only. Times across clocks show
    their uncertainty.
    """
    marks = sorted(record.marks.items(), key=lambda item: (item[1], ORDER.get(item[0], 0)))
    if not marks:
        return ["This utterance has no marks."]
    origin = marks[0][1]
    end = record.marks.get(Mark.FIRST_AUDIBLE_WIRE, marks[-1][1])
    total_ms = (end - origin) * 1000
    error = f"{record.clock_error_ms:.1f}" if record.clock_error_ms else ""
    uncertain = bool(error) and any(
        crosses_clocks(first, last) for (first, _), (last, _) in pairwise(marks)
    )
    error_width = max(len(error) + 2, 5) if uncertain else 0
    bar = max(10, width - NAME_WIDTH - 2 * TIME_WIDTH - error_width - 2)
    per_ms = bar / total_ms if total_ms >= 0.001 else 0.0  # damaged logs hold any number
    heading = f"{'at ms':>{TIME_WIDTH}}{'took ms':>{TIME_WIDTH}}{' ± ms' if uncertain else ''}"
    lines = [" " * NAME_WIDTH + heading]
    lines.append(_line(marks[0][0], 0.0, "", " " * error_width, "│"))
    for (earlier, before), (name, at) in pairwise(marks):
        start_ms, at_ms = (before - origin) * 1000, (at - origin) * 1000
        shape = ""
        if at <= end:
            start, stop = int(start_ms * per_ms), int(at_ms * per_ms)
            shape = " " * min(start, bar - 1) + ("█" * (stop - start) or "▏")
        known = f" ±{error}" if uncertain and crosses_clocks(earlier, name) else ""
        took = f"{at_ms - start_ms:.1f}"
        lines.append(_line(name, at_ms, took, f"{known:<{error_width}}", shape))
    return lines


def remarks(record: UtteranceRecord) -> list[str]:
    caveats = [f"Out of order: {each}." for each in disorder(record)]
    if record.clock_error_ms and OF_SERVER.intersection(record.marks):
        caveats.append(
            f"The server's moments are known to ± {record.clock_error_ms:.1f} ms"
            " against ours; between two of them they are exact."
        )
    if record.starvations:
        caveats.append(
            f"Underruns: {record.starvations}, {record.starved_ms:.1f} ms in all,"
            f" {record.longest_gap_ms:.1f} ms at the longest."
        )
    return caveats


def _line(name: str, at_ms: float, took: str, known: str, shape: str) -> str:
    times = f"{at_ms:>{TIME_WIDTH}.1f}{took:>{TIME_WIDTH}}"
    return f"{name:<{NAME_WIDTH}}{times}{known}  {shape}".rstrip()


NO_TERMINAL_COLUMNS = 100
NAME_COLUMNS = 14
"""Minimum width of names."""
CELL_MARGIN = 3
"""Cell border and padding."""
UNSTATED = "-"
"""Placeholder of a percentile with too few values."""
TOO_FEW = f"p95 from n = {tables.MIN_VALUES[95]}, p99 from n = {tables.MIN_VALUES[99]}"
DROP_ORDER = ("max", "clocks ±", "p99")
"""Columns dropped first in a narrow terminal."""


def chosen_rows(columns: Columns, views: Views, found: int | None) -> list[int]:
    """Return rows for waterfalls, worst first."""
    if views.chosen is not None:
        return [] if found is None else [found]
    if views.slowest or views.worst is not None:
        return [int(row) for row in worst(columns, views.worst or 1, views.worst_of)]
    middle = typical(columns)
    return [] if middle is None else [middle]


def compared(before: Columns, after: Columns) -> Comparison:
    from qwen3tts_cli.latency.comparison import compare

    return compare(before, after)


def print_report(
    console: Console,
    columns: Columns,
    rows: Iterable[int],
    views: Views,
    comparison: Comparison | None = None,
) -> None:
    headlines, stages = tables.headlines(columns), tables.stages(columns)
    for title, rows_shown in (
        ("To the first sound on the wire, and to silence (ms)", headlines),
        ("The stages on the way to the first sound (ms)", stages),
    ):
        console.print(table(title, rows_shown, console.width))
    if views.group_by is not None:
        by: NameColumn = getattr(columns, views.group_by.column)
        lead = tables.lead_name(columns)
        title = f"{lead[0].upper()}{lead[1:]} (ms), by {views.group_by}"
        console.print(_groups(title, columns, by))
    for line in sentences(tables.summary(columns)):
        console.print(line, markup=False)
    if comparison is not None:
        from qwen3tts_cli.latency.comparison import print_comparison

        console.print()
        print_comparison(console, comparison)
    width = console.width if console.is_terminal else NO_TERMINAL_COLUMNS
    for row in rows:
        console.print()
        for line in _utterance(columns, row, width, views):
            console.print(line, markup=False)


def _utterance(columns: Columns, row: int, width: int, views: Views) -> list[str]:
    record = columns.record_at(row)
    lines = [f"Utterance {record.call_id}/{record.context}:", "  " + about(record)]
    if len(columns.sources) > 1:
        lines[1] += f" · {columns.source.of(row)}"
    if views.with_text and record.text:
        lines.append(f"  “{record.text}”")
    lines = [printable(line.replace("\n", " ")) for line in lines]
    return [*lines, *waterfall(record, width), *remarks(record)]


def about(record: UtteranceRecord) -> str:
    parts = [clock_time(record.started_unix_s), record.engine]
    parts += [f"voice {record.voice}"] if record.voice else []
    parts += [f"{record.line} {record.codec}".strip()]
    parts += [f"turn ended by {record.rule}"] if record.rule else []
    parts += [f"ended by {record.end_reason}" if record.end_reason else "not ended"]
    return " · ".join(part for part in parts if part)


def clock_time(unix_s: float) -> str:
    """Return local date and time in ms; empty if unknown."""
    if not unix_s or not math.isfinite(unix_s):
        return ""
    try:
        local = datetime.fromtimestamp(unix_s, UTC).astimezone().replace(tzinfo=None)
    except (ValueError, OverflowError, OSError):
        return ""  # a damaged log holds any number
    return local.isoformat(" ", "milliseconds")


def sentences(summary: Summary) -> list[str]:
    lines = [
        f"{summary.utterances} utterances, {summary.played} played,"
        f" {summary.interrupted} interrupted."
    ]
    if not math.isnan(summary.gapless_pct):
        lines.append(
            f"{summary.gapless_pct:.2f} % without a gap; {summary.starvations} gaps in all,"
            f" the longest {summary.longest_gap_ms:.1f} ms."
        )
    ends = ", ".join(f"{count} {reason or 'open'}" for reason, count in summary.ends.items())
    lines.append(printable(f"Ended by: {ends}."))
    began, ended = clock_time(summary.began_unix_s), clock_time(summary.ended_unix_s)
    if began and ended:
        calls = "1 call" if summary.calls == 1 else f"{summary.calls} calls"
        lines.append(f"In {calls}, from {began[:19]} to {ended[:19]}.")
    return lines


def table(title: str, rows: list[Row], width: int | None = None) -> Table:
    """Return a table of percentiles, with clock uncertainty if any.

    In a narrow terminal (``width``) names wrap, then the least important columns are dropped
    with a note; numbers never wrap.
    """
    columns = {"n": [str(row.count) for row in rows]}
    for heading in ("p50", "p95", "p99", "max"):
        name = "largest" if heading == "max" else heading
        columns[heading] = [_time(getattr(row, name)) for row in rows]
    if any(row.clock_error_ms for row in rows):
        columns["clocks ±"] = [
            f"{row.clock_error_ms:.1f}" if row.clock_error_ms else "" for row in rows
        ]
    left_out = [] if width is None else _left_out(columns, width - NAME_COLUMNS - CELL_MARGIN - 1)
    shown = Table(title=title, title_justify="left")
    shown.add_column("from → to", overflow="fold", min_width=NAME_COLUMNS)
    kept = {heading: cells for heading, cells in columns.items() if heading not in left_out}
    for heading in kept:
        shown.add_column(heading, justify="right", no_wrap=True)
    for at, row in enumerate(rows):
        shown.add_row(row.name, *(cells[at] for cells in kept.values()))
    caveats = [f"{', '.join(left_out)}: in a wider terminal"] if left_out else []
    if any(math.isnan(row.p95) or math.isnan(row.p99) for row in rows):
        caveats.append(TOO_FEW)
    shown.caption = "; ".join(caveats) or None
    return shown


def _time(value: float) -> str:
    return UNSTATED if math.isnan(value) else f"{value:.1f}"


def _left_out(columns: dict[str, list[str]], room: int) -> list[str]:
    wide = {name: max(map(len, (name, *cells))) + CELL_MARGIN for name, cells in columns.items()}
    out: list[str] = []
    for name in DROP_ORDER:
        if sum(wide.values()) <= room:
            break
        if wide.pop(name, None) is not None:
            out.append(name)
    return out


def _groups(title: str, columns: Columns, by: NameColumn) -> Table:
    shown = Table(title=title, title_justify="left")
    shown.add_column("name", overflow="fold")
    for heading in ("utterances", "n", "p50", "p95", "p99", "max", "gapless %"):
        shown.add_column(heading, justify="right", no_wrap=True)
    found = tables.groups(columns, by)
    for each in found:
        row = each.lead
        times = (row.p50, row.p95, row.p99, row.largest, each.gapless_pct)
        cells = [str(row.count), *map(_time, times)]
        # As it is: a name may look like markup.
        shown.add_row(Text(printable(each.name) or "none"), str(each.utterances), *cells)
    if (more := len(by.counts()) - len(found)) > 0:
        shown.caption = f"and {more} more"
    return shown


def as_json(
    columns: Columns, rows: Iterable[int], views: Views, comparison: Comparison | None = None
) -> str:
    shown = figures(columns)
    if views.group_by is not None:
        groups = tables.groups(columns, getattr(columns, views.group_by.column))
        shown["groups"] = [_group(each) for each in groups]
    if views.worst is not None or views.slowest or views.chosen is not None:
        values = values_of(views.worst_of, columns)
        shown["utterance_list"] = [
            {
                "worst_of": str(views.worst_of),
                "value_ms": _known(float(values[row])),
                "log": columns.source.of(row),
                **json.loads(columns.record_at(row).to_json(include_text=views.with_text)),
            }
            for row in rows
        ]
    if comparison is not None:
        shown["comparison"] = comparison.to_json()
    return json.dumps(shown, indent=2, allow_nan=False)


def figures(columns: Columns) -> dict[str, object]:
    found, findings = tables.summary(columns), columns.findings
    return {
        "utterances": found.utterances,
        "calls": found.calls,
        "played": found.played,
        "interrupted": found.interrupted,
        "began_unix_s": _known(found.began_unix_s),
        "ended_unix_s": _known(found.ended_unix_s),
        "lines": findings.lines,
        "damaged_lines": findings.damaged,
        "repeated_lines": findings.repeated,
        "newer_versions": findings.newer,
        "out_of_order": findings.out_of_order,
        "clock_steps": findings.clock_steps,
        "findings": findings.sentences(),
        "gapless_pct": _known(found.gapless_pct),
        "starvations": found.starvations,
        "longest_gap_ms": found.longest_gap_ms,
        "ends": found.ends,
        "fewest_for_percentiles": {f"p{percent:g}": n for percent, n in tables.MIN_VALUES.items()},
        "headlines": [_row(row) for row in tables.headlines(columns)],
        "stages": [_row(row) for row in tables.stages(columns)],
    }


def _row(row: Row) -> dict[str, object]:
    return {
        key: _known(value) if isinstance(value, float) else value
        for key, value in asdict(row).items()
    }


def _group(group: Group) -> dict[str, object]:
    return {
        "name": group.name,
        "utterances": group.utterances,
        "gapless_pct": _known(group.gapless_pct),
        "lead": _row(group.lead),
    }


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
