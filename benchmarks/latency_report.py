"""Cost of reading, tabling, plotting and exporting a large latency log.

The log is synthetic, of 100,000 utterances: 2,000 calls of two engines, with gaps, interruptions
and failures. Each row is the command, ``mr-qwen3tts latency LOG …``, in a process of its own,
from its start to its end: *s* on the wall, *CPU s* of all its threads, *MB* the most memory it ever
held (resident). *Floor* is a loop of ``json.loads`` over the lines, which keeps nothing; pandas and
polars stand beside it where they are installed, reading the same file into a table of their own.

The last row is what the figure tells: read, tabled, the worst drawn, and plotted.

The parts within one process come after that, each with the time that it adds.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from common import Bench

from tests.cli.latency.synthetic import Made, made_log

UTTERANCES = 100_000
QUICK_UTTERANCES = 5_000
PER_CALL = 50
WORST = 10
PLOTTED = f"tables, {WORST} waterfalls, page"
"""Read, tabled and plotted: the figure is its."""

FLOOR = "import json, sys\nfor line in open(sys.argv[1], 'rb'): json.loads(line)"
PEERS = {
    "pandas": "import pandas, sys\npandas.read_json(sys.argv[1], lines=True)",
    "polars": "import polars, sys\npolars.read_ndjson(sys.argv[1])",
}


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one process."""

    wall_s: float
    cpu_s: float
    most_mb: float


def cost(arguments: list[str]) -> Cost:
    """Run a program to its end; raises RuntimeError with what it said where it failed."""
    with tempfile.TemporaryFile() as said:
        began = time.perf_counter()
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise RuntimeError(said.read().decode("utf-8", "replace")[-500:])
    return Cost(wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def command(*arguments: str | Path) -> list[str]:
    """The subcommand as a user starts it."""
    return [sys.executable, "-m", "qwen3tts_cli.main", "latency", *map(str, arguments)]


def whole(bench: Bench, folder: Path, log: Path, before: Path) -> Cost:
    """The command in its ways; what the last one took."""
    page, trace = folder / "report.html", folder / "trace.json.gz"
    ways = {
        "floor: json.loads of each line": [sys.executable, "-c", FLOOR, str(log)],
        **{
            f"{name}, into its own table": [sys.executable, "-c", code, str(log)]
            for name, code in PEERS.items()
            if importlib.util.find_spec(name) is not None
        },
        "tables": command(log),
        f"tables, {WORST} waterfalls": command(log, "--worst", str(WORST)),
        "tables, one engine of two": command(log, "--engine", "embedded"),
        "tables, comparison with as many": command(log, "--before", before),
        "tables, trace": command(log, "--perfetto", trace),
        PLOTTED: command(log, "--worst", str(WORST), "--html", page),
    }
    rows, last = [], Cost(0, 0, 0)
    for name, arguments in ways.items():
        try:
            last = cost(arguments)
        except RuntimeError as error:
            bench.failed(name, error)
            continue
        rows.append([name, last.wall_s, last.cpu_s, last.most_mb])
    bench.table("the whole command", ["what", "s", "CPU s", "MB"], rows)
    sizes = [[each.name, each.stat().st_size / 1e6] for each in (log, page, trace) if each.exists()]
    bench.table("files", ["what", "MB"], sizes)
    return last


@contextmanager
def timed(rows: list[list[object]], name: str) -> Iterator[None]:
    """Take the time of a part."""
    began, cpu = time.perf_counter(), time.process_time()
    yield
    rows.append([name, time.perf_counter() - began, time.process_time() - cpu])


def parts(log: Path, before: Path, folder: Path) -> list[list[object]]:
    """Each part on its own, one after the other in this process."""
    rows: list[list[object]] = []
    with timed(rows, "import"):
        from qwen3tts_cli.latency import show, tables
        from qwen3tts_cli.latency.html import write_page
        from qwen3tts_cli.latency.options import Views
        from qwen3tts_cli.latency.perfetto import write_trace
        from qwen3tts_cli.latency.reading import find_logs, read_columns
        from qwen3tts_cli.latency.selection import worst
    with timed(rows, "read into columns"):
        columns = read_columns(find_logs([log]).files)
    with timed(rows, "stage tables and counts"):
        tables.headlines(columns)
        tables.stages(columns)
        tables.summary(columns)
    with timed(rows, f"find the {WORST} worst and read them again"):
        list(columns.records(int(row) for row in worst(columns, WORST)))
    with timed(rows, "all figures as JSON"):
        show.as_json(columns, [], Views())
    with timed(rows, "read every utterance again"):
        for _ in columns.records():
            pass
    with timed(rows, "write the trace"):
        write_trace(columns.records(), folder / "trace.json")
    with timed(rows, "write the page"):
        write_page(columns, folder / "report.html")
    earlier = read_columns(find_logs([before]).files)
    with timed(rows, "compare with as many"):
        show.compared(earlier, columns)
    return rows


def main() -> None:
    """Make the logs, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--utterances", type=int, help=f"in the log; else {UTTERANCES}")
    parser.add_argument("--parts", type=Path, nargs=3, help=argparse.SUPPRESS)
    bench = Bench("latency_report", __doc__ or "", parser)
    if bench.args.parts is not None:
        print(json.dumps(parts(*bench.args.parts)))
        return
    count = bench.args.utterances or (QUICK_UTTERANCES if bench.quick else UTTERANCES)
    calls = max(1, count // PER_CALL)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = made_log(folder / "calls.jsonl", Made(utterances=count, calls=calls))
        before = made_log(
            folder / "before.jsonl", Made(utterances=count, calls=calls, seed=1, slower_ms=10)
        )
        bench.note(f"{count} utterances of {calls} calls, {log.stat().st_size / 1e6:.1f} MB")
        last = whole(bench, folder, log, before)
        done = subprocess.run(
            [sys.executable, __file__, "--parts", str(log), str(before), str(folder)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            bench.failed("parts", RuntimeError(done.stderr[-500:]))
        else:
            bench.table("the parts", ["what", "s", "CPU s"], json.loads(done.stdout))
    bench.figure(utterances=count, seconds=last.wall_s, cpu_seconds=last.cpu_s, rss_mb=last.most_mb)


if __name__ == "__main__":
    main()
