"""Shared parts of the benchmarks: arguments, a table, the JSON file, the closing line."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

try:
    from rich.console import Console
    from rich.table import Table
except ImportError:  # a GPU machine need not have it
    RICH = False
else:
    RICH = True

Row = Mapping[str, Any]


class Bench:
    """One benchmark run.

    >>> bench = Bench("resample", "24 to 8 kHz in 20 ms blocks")   # parses the command line
    >>> bench.table("speed", ["what", "us"], [["ours", 10.6]])
    >>> bench.figure(us_per_20ms=10.6)   # the FIGURE line, and --json
    """

    def __init__(
        self, name: str, about: str, parser: argparse.ArgumentParser | None = None
    ) -> None:
        self.name = name
        parser = parser or argparse.ArgumentParser(description=about)
        parser.add_argument(
            "--quick", action="store_true", help="under a minute: smaller, same code"
        )
        parser.add_argument("--json", type=Path, metavar="FILE", help="write all rows and figures")
        self.args = parser.parse_args()
        self.quick: bool = self.args.quick
        self._tables: dict[str, list[dict[str, Any]]] = {}
        self._failed: dict[str, str] = {}

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Print a table and keep it for the JSON file."""
        cells = [[_cell(value) for value in row] for row in rows]
        if RICH:
            table = Table(title=title, title_justify="left")
            for index, column in enumerate(columns):
                table.add_column(column, justify="left" if index == 0 else "right")
            for line in cells:
                table.add_row(*line)
            Console(width=int(os.environ.get("COLUMNS", "120"))).print(table)
        else:
            print(plain_table(title, columns, cells), flush=True)
        self._tables[title] = [dict(zip(columns, row, strict=True)) for row in rows]

    def note(self, text: str) -> None:
        """Print one line beside the tables."""
        print(text, flush=True)

    def failed(self, part: str, error: BaseException) -> None:
        """A part broke; the others go on, and the JSON file says so."""
        self._failed[part] = f"{type(error).__name__}: {error}"
        self.note(f"{part} failed: {self._failed[part]}")

    def figure(self, **figures: float | int | str) -> None:
        """Print the closing line and write ``--json``."""
        line = " ".join(f"{key}={_cell(value)}" for key, value in figures.items())
        self.save(**figures)
        print(f"FIGURE {self.name} {line}", flush=True)

    def save(self, **figures: float | int | str) -> None:
        """Write ``--json`` as far as it goes."""
        if self.args.json is not None:
            record = {
                "benchmark": self.name,
                "quick": self.quick,
                "figures": figures,
                "tables": self._tables,
                "failed": self._failed,
                "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                "commit": _commit(),
                "python": platform.python_version(),
                "cores": os.cpu_count(),
            }
            self.args.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def plain_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same table in plain characters."""
    lines = [list(columns), *map(list, rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    shown = [
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    return "\n".join((title, shown[0], "-" * len(shown[0]), *shown[1:]))


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def _commit() -> str | None:
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(
        ["git", "-C", str(root), "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or None
