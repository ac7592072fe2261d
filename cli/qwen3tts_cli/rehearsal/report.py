"""Progress and summary of a rehearsal at the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from qwen3tts_cli.output.columns import columns
from qwen3tts_cli.output.console import note, printable

if TYPE_CHECKING:
    from qwen3tts_rehearsal.results import CallResult, RehearsalResult, Verdict

MAX_DETAILS = 3
"""Failed verdicts of a call in its line."""


class Progress:
    """Prints a line for each call that is over."""

    def __init__(self, planned: int) -> None:
        self._planned = planned
        self._done = 0

    def __call__(self, result: CallResult) -> None:
        self._done += 1
        note(f"{self._done} of {self._planned}: {line_of(result)}")


def line_of(result: CallResult) -> str:
    """Return one line: name, outcome, and what failed."""
    if result.error:
        return f"{result.name}: not judged: {printable(result.error)}"
    if result.passed:
        return f"{result.name}: passed, {result.duration_s:.1f} s"
    failed = [sentence_of(each) for each in result.failed]
    more = f"; and {len(failed) - MAX_DETAILS} more" if len(failed) > MAX_DETAILS else ""
    return f"{result.name}: FAILED: {'; '.join(failed[:MAX_DETAILS])}{more}"


def sentence_of(verdict: Verdict) -> str:
    """Return what was measured beside what was expected."""
    from qwen3tts_rehearsal.junit import sentence

    return printable(sentence(verdict))


def print_summary(result: RehearsalResult) -> None:
    """Print a table with a row for each scenario, and the total."""
    rows = [("scenario", "calls", "passed", "failed verdicts")]
    names = list(dict.fromkeys(each.scenario for each in result.calls))
    for name in names:
        calls = [each for each in result.calls if each.scenario == name]
        passed = sum(each.passed for each in calls)
        rows.append((name, str(len(calls)), str(passed), _failures(calls)))
    for line in columns(rows, None):
        typer.echo(line)
    passed = sum(each.passed for each in result.calls)
    total = f"{passed} of {len(result.calls)} calls passed in {result.seconds:.0f} s"
    left = "" if result.complete else f"; {result.planned - len(result.calls)} were not made"
    typer.echo(f"{total}{left}.")


def _failures(calls: Iterable[CallResult]) -> str:
    counts: dict[str, int] = {}
    for call in calls:
        for name in ["error"] if call.error else [each.name for each in call.failed]:
            counts[name] = counts.get(name, 0) + 1
    return ", ".join(f"{name} {count}" for name, count in counts.items())
