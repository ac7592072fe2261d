"""``mr-qwen3tts latency``: what a log of utterances says about time."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qwen3tts_cli.exits import ExitCode
from qwen3tts_cli.output import complain, note, notes, printable, results

if TYPE_CHECKING:
    from rich.table import Table

    from qwen3tts_cli.report import Report, Row
    from qwen3tts_speech.latency import LogReader, UtteranceRecord


def add_to(app: typer.Typer) -> None:
    """Put the subcommand into ``app``."""
    app.command(
        epilog="Examples:\n\n  mr-qwen3tts latency calls.jsonl\n\n"
        "  mr-qwen3tts latency calls.jsonl --slowest\n\n"
        "  tail -n 1000 calls.jsonl | mr-qwen3tts latency - --json"
    )(latency)


def latency(
    log: Annotated[
        Path, typer.Argument(metavar="LOG|-", help="A file that --latency-log has written.")
    ],
    slowest: Annotated[
        bool, typer.Option("--slowest", help="Waterfall of the utterance slowest to sound.")
    ] = False,
    chosen: Annotated[
        str | None,
        typer.Option("--id", metavar="CALL/CONTEXT", help="Waterfall of this utterance."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """[bold]Table[/bold] of stages (p50, p95, p99) and [bold]waterfall[/bold] of one utterance.

    Without --slowest or --id the waterfall shows an utterance near the median.
    """
    if slowest and chosen is not None:
        raise typer.BadParameter("choose one of --slowest and --id.")
    if not show_report(log, slowest=slowest, chosen=chosen, as_json=as_json):
        raise typer.Exit(ExitCode.FAILED)


def show_report(
    log: Path, *, slowest: bool = False, chosen: str | None = None, as_json: bool = False
) -> bool:
    """Print tables and a waterfall of a log; False, and an error told, when there is none."""
    from qwen3tts_cli.report import Report
    from qwen3tts_speech.latency import read_log

    reader = read_log(sys.stdin.buffer if str(log) == "-" else log)
    report, found = Report(), None
    for record in _counted(reader, log):
        report.add(record)
        if chosen is not None and found is None and chosen in names(record):
            found = record
    _tell_damage(reader)
    if not report.utterances:
        complain(
            f"{log} holds no utterance.", "Make one with: mr-qwen3tts call … --latency-log FILE"
        )
        return False
    if chosen is not None and found is None:
        complain(f"no utterance in {log} is called {chosen}.", "Take one of the log's call_id.")
        return False
    if as_json:
        typer.echo(json.dumps(figures(report, reader.damaged), indent=2))
    else:
        _print(report, found or (report.slowest if slowest else report.typical()))
    return True


def _counted(reader: LogReader, log: Path) -> Iterator[UtteranceRecord]:
    """The records, with a bar on the way through a large file."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    console = notes()
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        task = progress.add_task(f"Reading {printable(str(log))}")
        for record in reader:
            if reader.lines % 10_000 == 0:
                progress.update(task, description=f"{reader.lines} lines")
            yield record


def names(record: UtteranceRecord) -> set[str]:
    """What an utterance may be called by."""
    return {record.context, record.call_id, f"{record.call_id}/{record.context}"} - {""}


def _tell_damage(reader: LogReader) -> None:
    if reader.damaged:
        note(f"{reader.damaged} of {reader.lines} lines are no utterances and were left out:")
        for each in reader.examples:
            note(f"  line {each.line}: {each.why}")
        if reader.damaged > len(reader.examples):
            note(f"  … and {reader.damaged - len(reader.examples)} more")


def _print(report: Report, shown: UtteranceRecord | None) -> None:
    from qwen3tts_cli.waterfall import waterfall

    console = results()
    console.print(_table("To the first sound on the wire, and to silence (ms)", report.headlines()))
    console.print(_table("The stages on the way to the first sound (ms)", report.stages()))
    for line in summary(report):
        console.print(line, markup=False)
    if shown is not None:
        console.print()
        console.print(printable(f"Utterance {shown.call_id}/{shown.context}:"), markup=False)
        width = console.width if console.is_terminal else 100
        for line in waterfall(shown, width):
            console.print(line, markup=False)


def summary(report: Report) -> list[str]:
    """The counts, in sentences."""
    gapless = report.gapless_pct
    lines = [
        f"{report.utterances} utterances, {report.played} played, {report.interrupted} interrupted."
    ]
    if not math.isnan(gapless):
        lines.append(
            f"{gapless:.2f} % without a gap; {report.starvations} gaps in all,"
            f" the longest {report.longest_gap_ms:.1f} ms."
        )
    ends = ", ".join(f"{count} {reason or 'open'}" for reason, count in report.ends.most_common())
    lines.append(printable(f"Ended by: {ends}."))
    return lines


def _table(title: str, rows: Iterable[Row]) -> Table:
    from rich.table import Table

    shown = Table(title=title, title_justify="left")
    shown.add_column("from → to", overflow="fold")
    for heading in ("n", "p50", "p95", "p99", "max"):
        # In a narrow terminal the names are broken, never the numbers.
        shown.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        times = (row.p50, row.p95, row.p99, row.largest)
        shown.add_row(row.name, str(row.count), *(f"{time:.1f}" for time in times))
    return shown


def figures(report: Report, damaged: int) -> dict[str, object]:
    """The same for programs; times in ms."""
    gapless = report.gapless_pct
    return {
        "utterances": report.utterances,
        "played": report.played,
        "interrupted": report.interrupted,
        "damaged_lines": damaged,
        "gapless_pct": None if math.isnan(gapless) else gapless,
        "starvations": report.starvations,
        "longest_gap_ms": report.longest_gap_ms,
        "ends": dict(report.ends),
        "headlines": [asdict(row) for row in report.headlines()],
        "stages": [asdict(row) for row in report.stages()],
    }
