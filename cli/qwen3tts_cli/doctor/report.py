"""Output of ``doctor``: a line a check, or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from qwen3tts_cli.output.console import printable, results

if TYPE_CHECKING:
    from qwen3tts_cli.doctor.checks import Check


COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


class Report:
    def __init__(self, as_json: bool = False) -> None:
        self._as_json = as_json
        self.made: list[Check] = []

    def add(self, check: Check) -> None:
        self.made.append(check)
        if not self._as_json:
            _print(check)

    def add_all(self, checks: Iterable[Check]) -> None:
        for each in checks:
            self.add(each)

    def close(self) -> None:
        if self._as_json:
            typer.echo(json.dumps([_fields(each) for each in self.made], indent=2))


def _fields(check: Check) -> dict[str, object]:
    found = asdict(check)
    if not check.figures:
        del found["figures"]
    return found


def _print(check: Check) -> None:
    from rich.text import Text

    console = results()
    line = Text(f"{check.level:<5}", style=COLOURS[check.level])
    line.append(Text(f"{check.name}: {printable(check.found)}", style="default"))
    console.print(line)
    if check.remedy:
        console.print(Text(f"     → {printable(check.remedy)}", style="dim"))
