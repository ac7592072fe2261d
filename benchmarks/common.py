"""What the benchmarks share: arguments, a table, the JSON file, the closing line."""

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

from rich.console import Console
from rich.table import Table

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
        self._console = Console(width=int(os.environ.get("COLUMNS", "120")))

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Print a table and keep it for the JSON file."""
        table = Table(title=title, title_justify="left")
        for index, column in enumerate(columns):
            table.add_column(column, justify="left" if index == 0 else "right")
        for row in rows:
            table.add_row(*(_cell(value) for value in row))
        self._console.print(table)
        self._tables[title] = [dict(zip(columns, row, strict=True)) for row in rows]

    def note(self, text: str) -> None:
        """Print one line beside the tables."""
        self._console.print(text, highlight=False)

    def figure(self, **figures: float | int | str) -> None:
        """Print the closing line and write ``--json``."""
        line = " ".join(f"{key}={_cell(value)}" for key, value in figures.items())
        if self.args.json is not None:
            record = {
                "benchmark": self.name,
                "quick": self.quick,
                "figures": figures,
                "tables": self._tables,
                "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                "commit": _commit(),
                "python": platform.python_version(),
                "cores": os.cpu_count(),
            }
            self.args.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(f"FIGURE {self.name} {line}", flush=True)


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
