"""Run the suite in two parts, in parallel: tests without sockets, then tests that open sockets.

`python -m tests.run [pytest arguments]`; with a ``-m`` of yours there is one part. Tests with the
marker `network` wait for real time most of the time, so more of them run side by side than there
are cores. With ``--repeat N`` up to N that failed in a part are run once more, alone, and listed: a
machine that stalls fails a real peer or a child process now and then. At the end it prints the ten
slowest tests and those over 4 s that lack the marker.
Exit status: 0 = every test passed.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

NO_TESTS = 5
SLOWEST = 10
UNMARKED_S = 4.0
"""A test that takes longer should carry the marker `network`, or be made faster."""
CORES = os.cpu_count() or 1
PARTS = (
    ("tests without sockets", "not network", CORES),
    ("tests with sockets and real peers", "network", 2 * CORES),
)


@dataclass(frozen=True)
class Outcome:
    """Outcome of one test: its node id, its seconds, whether it failed."""

    node: str
    seconds: float
    failed: bool


def outcomes(report: Path) -> list[Outcome]:
    """Read a JUnit report."""
    found = []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        failed = case.find("failure") is not None or case.find("error") is not None
        node = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        found.append(Outcome(node, float(case.get("time", 0)), failed))
    return found


def run_pytest(arguments: list[str], report: Path) -> int:
    """Run pytest in a process of its own and return its exit status."""
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    command = [sys.executable, "-m", "pytest", f"--junit-xml={report}", *arguments]
    return subprocess.run(command, env=environment, check=False).returncode


def parallel(workers: int) -> list[str]:
    """Return the options that run test files on ``workers`` processes."""
    return [] if workers == 1 else ["-n", str(workers), "--dist", "loadfile"]


def main() -> int:
    """Run both parts; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=0, metavar="N")
    parser.add_argument("--workers", type=int, metavar="N", help="processes of both parts")
    options, extra = parser.parse_known_args()
    # A shell's background job ignores SIGINT, and so would every command that the tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    one_part = "-m" in extra
    statuses, found, unmarked = [], list[Outcome](), list[Outcome]()
    repeated, times = list[str](), list[str]()
    with tempfile.TemporaryDirectory(prefix="qwen3tts-tests-") as folder:
        for number, (name, marker, workers) in enumerate(PARTS[: 1 if one_part else None]):
            began = time.monotonic()
            report = Path(folder) / f"{number}.xml"
            workers = options.workers or workers
            # A cache of its own: what failed in an earlier run is not run again.
            cache = ["-o", f"cache_dir={folder}/cache{number}"] if options.repeat else []
            status = run_pytest([*parallel(workers), "-m", marker, *cache, *extra], report)
            part = outcomes(report) if report.exists() else []
            failed = [each.node for each in part if each.failed]
            if status == 1 and 0 < len(failed) <= options.repeat:
                print(f"\nonce more, alone: the {len(failed)} that failed", flush=True)
                again = ["--last-failed", "--last-failed-no-failures", "none", *cache]
                status = run_pytest([*again, "-m", marker, *extra], Path(folder) / "again.xml")
                status = 1 if status == NO_TESTS else status
                repeated += failed
            found += part
            if number == 0 and not one_part:
                unmarked += [each for each in part if each.seconds > UNMARKED_S]
            statuses.append(status)
            times.append(f"{time.monotonic() - began:6.0f} s  {name} ({len(part)})")
    print("\n" + "\n".join(times))
    print(f"the {SLOWEST} slowest tests:")
    for each in sorted(found, key=lambda each: -each.seconds)[:SLOWEST]:
        print(f"{each.seconds:6.1f} s  {each.node}")
    for each in unmarked:
        print(f"over {UNMARKED_S:g} s without the marker: {each.seconds:.1f} s  {each.node}")
    for node in repeated:
        print(f"needed a second run: {node}")
    ran = [status for status in statuses if status != NO_TESTS]
    return max(ran, default=NO_TESTS)


if __name__ == "__main__":
    sys.exit(main())
