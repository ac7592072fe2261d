"""Subcommand ``latency``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qwen3tts_cli.latency.options import Exports, Filters, Views, moment_of
from qwen3tts_cli.options.common import option_groups
from qwen3tts_cli.output.console import (
    note,
    notes,
    print_error,
    print_speech_error,
    printable,
    results,
)
from qwen3tts_cli.output.exits import ExitCode

if TYPE_CHECKING:
    from qwen3tts_cli.latency.choices import LogKind
    from qwen3tts_cli.latency.columns import Columns
    from qwen3tts_cli.latency.reading import ReadFilter, ResolvedLogs

MAX_DAMAGE_SHOWN = 5
"""Damaged lines listed in the terminal; all are counted."""


FIRST_OPTIONS = (
    "--html",
    "--worst",
    "--slowest",
    "--id",
    "--call",
    "--engine",
    "--since",
    "--group-by",
    "--before",
    "--with-text",
    "--follow",
    "--json",
)


def add_to(app: typer.Typer) -> None:
    app.command(
        epilog="Examples:\n\n  mr-qwen3tts latency calls.jsonl --worst 5\n\n"
        "  mr-qwen3tts latency logs/ --engine qwen3 --since 2h --html report.html\n\n"
        "  mr-qwen3tts latency after.jsonl --before before.jsonl\n\n"
        "  mr-qwen3tts latency calls.jsonl --follow\n\n"
        "  tail -n 1000 calls.jsonl | mr-qwen3tts latency - --json"
    )(option_groups(filters=Filters, views=Views, exports=Exports)(latency))


def latency(
    logs: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG…",
            help=(
                "Logs of --latency-log (or mr_sip; .gz too), folders, patterns, or - for"
                " standard input."
            ),
        ),
    ],
    filters: Filters,
    views: Views,
    exports: Exports,
) -> None:
    """[bold]Tables[/bold] of stages (p50, p95, p99), [bold]waterfalls[/bold] of utterances.

    Without --worst, --slowest or --id the waterfall shows an utterance near the median. Filters
    apply to all output.
    """
    if views.follow:
        if exports.compares or exports.writes or exports.to is not None:
            raise typer.BadParameter("--follow only shows; leave out what compares and writes.")
        from qwen3tts_cli.latency.live import follow

        follow(logs, filters.selection())
        return
    if exports.to is not None and views.shows_more:
        raise typer.BadParameter(
            "--to prints all utterances as lines and nothing else; leave out --json, --worst,"
            " --slowest, --id and --group-by."
        )
    if not show_report(logs, filters=filters, views=views, exports=exports):
        raise typer.Exit(ExitCode.FAILED)


def show_report(
    logs: Path | Sequence[str],
    *,
    filters: Filters | None = None,
    views: Views | None = None,
    exports: Exports | None = None,
) -> bool:
    """Print and write the requested output; False with an error printed if something is missing."""
    from qwen3tts_cli.latency import exporting, show
    from qwen3tts_cli.latency.reading import ReadFilter, find_logs

    filters, views, exports = filters or Filters(), views or Views(), exports or Exports()
    found = find_logs([logs] if isinstance(logs, Path) else logs)
    earlier = find_logs(exports.before or ())
    for missing in (*found.missing, *earlier.missing):
        print_speech_error(missing)
    if not found.files or (exports.before and not earlier.files):
        return False
    exporting.refuse_overwriting(exports, [*found.files, *earlier.files])
    wanted = ReadFilter(filters.selection(), views.chosen)
    columns = _read(found, wanted, exports.from_)
    before = None
    if exports.before:
        before = _read(earlier, ReadFilter(filters.selection()), exports.from_)
    elif exports.split is not None:
        at = moment_of("--split", exports.split)
        before = columns.select(columns.started_unix_s < at)
        columns = columns.select(columns.started_unix_s >= at)
        wanted.found = None
    if not _enough(columns, before, wanted, found):
        return False
    rows = show.chosen_rows(columns, views, wanted.found)
    if exports.to is not None:
        exporting.print_lines(columns, exports.to, sys.stdout, with_text=views.with_text)
    else:
        comparison = None
        if before is not None:
            with _busy("Comparing"):
                comparison = show.compared(before, columns)
        if views.as_json:
            typer.echo(show.as_json(columns, rows, views, comparison))
        else:
            show.print_report(results(), columns, rows, views, comparison)
        wanted_exports = exporting.exports(columns, before, comparison, exports, views.with_text)
        for name, write in wanted_exports:
            with _busy(f"Writing {name}"):
                message = write()
            note(message)
    return not (found.missing or earlier.missing)


def _read(found: ResolvedLogs, wanted: ReadFilter, kind: LogKind | None) -> Columns:
    from qwen3tts_cli.latency.reading import read_columns

    with _busy("Reading") as show_progress:
        columns = read_columns(
            found.files, wanted, kind=kind, progress=lambda lines: show_progress(f"{lines} lines")
        )
    findings = columns.findings
    findings.remarks[:0] = found.remarks
    for sentence in findings.sentences():
        note(sentence)
    several = len({each.source for each in findings.examples}) > 1 or len(found.files) > 1
    for each in findings.examples[:MAX_DAMAGE_SHOWN]:
        note(f"  {each.source + ', ' if several else ''}line {each.line}: {each.why}")
    if findings.damaged > MAX_DAMAGE_SHOWN:
        note(f"  … and {findings.damaged - MAX_DAMAGE_SHOWN} more")
    return columns


def _enough(
    columns: Columns, before: Columns | None, wanted: ReadFilter, found: ResolvedLogs
) -> bool:
    where = found.files[0].name if len(found.files) == 1 else f"{len(found.files)} logs"
    if not wanted.seen:
        print_error(
            f"{where} holds no utterance.".replace("logs holds", "logs hold"),
            "Make one with: mr-qwen3tts call … --latency-log FILE",
        )
    elif wanted.chosen is not None and wanted.found is None:
        print_error(
            f"no utterance in {where} is called {wanted.chosen}.", "Use a call_id of a log."
        )
    elif not len(columns) and before is not None and len(before):
        print_error(
            "no utterance is left after the change.", "Use another --split, or fewer filters."
        )
    elif not len(columns):
        print_error(
            f"none of the {wanted.seen} utterances in {where} fits the filters.",
            "Leave out a filter, or see with --group-by what there is.",
        )
    elif before is not None and not len(before):
        print_error(
            "no utterance is left before the change.",
            "Use another log or --split, or leave out a filter.",
        )
    else:
        return True
    return False


@contextmanager
def _busy(what: str) -> Iterator[Callable[[str], None]]:
    from rich.markup import escape
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    console = notes()
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        name = escape(printable(what))
        task = progress.add_task(name)
        yield lambda detail: progress.update(task, description=f"{name}: {detail}")
