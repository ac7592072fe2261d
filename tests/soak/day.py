"""A day of a telephone line in an hour: calls of all endings, and then nothing may be left over.

    python -m tests.soak.day [--seconds 3600] [--at-once 8] [--only TEXT]

Outside CI (``make soak``). The far end is a process of its own, so that what is counted is the
phone's and its media process'. Exit status 1: a call ended otherwise than it should, or something
is left over: a task, a socket or file, memory that grows with the number of calls.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from qwen3tts_phone.phone import Phone, PhoneSettings
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_phone.sip import SipSettings
from tests.soak.endings import ENDINGS, LONGEST_S, Day
from tests.soak.far_end import QUICK
from tests.soak.left_over import Held, children_of, kinds, now_held

ROOT = Path(__file__).resolve().parents[2]
SETTLES_S = 64 * QUICK.t1 + 3.0
"""After it nothing of a call is kept for repetitions."""
WARMS_UP_S = 10.0
"""How long calls are made before anything is counted: heaps and caches grow at first."""
MOST_KB_A_CALL = 1.0
"""Resident memory that may be gained; a call that stays behind costs 100 times that."""
SPARE_KB = 16_000
"""Memory that a longer run has whatever its calls: caches, the heap's holes. It comes with the
first hundreds of calls: after 537 that were busy, 405 more gained 84 kB."""
MOST_OBJECTS_A_CALL = 0.2
"""A call that stays behind has hundreds."""
SPARE_OBJECTS = 2500
"""The speech connection remembers its last 64 utterances, with their words."""


@dataclass
class Tally:
    """How the calls went."""

    calls: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, str]] = field(default_factory=list)


async def one(day: Day, name: str, tally: Tally) -> None:
    """One call of a kind."""
    tally.calls[name] += 1
    try:
        async with asyncio.timeout(LONGEST_S):
            await ENDINGS[name](day)
    except Exception as error:
        # Where this task ends: the day goes on, and the table says so.
        tally.failures.append((name, f"{type(error).__name__}: {error}"))
        print(f"{name}: {tally.failures[-1][1]}", flush=True)


async def all_day(day: Day, names: list[str], seconds: float, at_once: int, tally: Tally) -> None:
    """Calls for that long, so many at once."""
    end = time.monotonic() + seconds
    order = itertools.cycle(names)

    async def work() -> None:
        while time.monotonic() < end:
            await one(day, next(order), tally)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(work())


async def settled(day: Day) -> None:
    """Wait until no call is left, and nothing of one is kept for repetitions."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LONGEST_S):
            while day.phone.calls:
                await asyncio.gather(*(call.ended() for call in list(day.phone.calls)))
                await asyncio.sleep(0.05)
    await asyncio.sleep(SETTLES_S)


@asynccontextmanager
async def far_end() -> AsyncIterator[tuple[asyncio.subprocess.Process, int, str]]:
    """The other side's process, its port, and the address of its speech server."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.soak.far_end"),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            ready = json.loads(await process.stdout.readline())
        yield process, ready["port"], ready["speech"]
    finally:
        process.stdin.close()
        with contextlib.suppress(ProcessLookupError, TimeoutError):
            async with asyncio.timeout(5):
                await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()


async def run(options: argparse.Namespace, folder: Path) -> int:
    """The whole day; gives the exit status."""
    names = [name for name in ENDINGS if options.only in name]
    tally = Tally()
    others = children_of(os.getpid())
    async with far_end() as (process, port, speech):
        known = children_of(os.getpid())
        before = now_held(())
        settings = PhoneSettings(
            server_url=speech,
            sip=SipSettings(timers=QUICK, max_calls=10 * options.at_once + 100),
            media_silent_s=1.0,
            vanished_s=2.0,
            transfers="accept",
            records=RecordSettings(log=folder / "calls.jsonl"),
        )
        began = time.monotonic()
        async with Phone(settings) as phone:
            media = tuple(children_of(os.getpid()) - known - others)
            day = Day(phone, process, port)
            helpers = [asyncio.create_task(day.hear()), asyncio.create_task(day.take())]
            # Everything once, so that what is made at first use is there.
            warm = Tally()
            await all_day(day, names, 0.01, len(names), warm)
            await all_day(day, names, WARMS_UP_S, options.at_once, warm)
            await settled(day)
            first, first_kinds = now_held(media), kinds()
            await all_day(day, names, options.seconds, options.at_once, tally)
            await settled(day)
            last = now_held(media)
            gained = kinds() - first_kinds
            state = left_in(phone)
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
        after = now_held(())
        seconds = time.monotonic() - began
    tally.failures += warm.failures
    records = sum(1 for _ in (folder / "calls.jsonl").open())
    return report(tally, first, last, before.beyond(after), state, gained, seconds, records)


def left_in(phone: Phone) -> dict[str, int]:
    """What the phone still knows of calls that are over."""
    agent = phone.sip.agent
    return {
        "calls": len(phone.calls),
        "dialogs and calls of SIP": len(agent.calls),
        "transactions": len(agent.layer),
        "timers": len(agent.timed) + len(agent.registry.usages),
    }


def report(
    tally: Tally,
    first: Held,
    last: Held,
    closed: dict[str, int],
    state: dict[str, int],
    gained: Counter[str],
    seconds: float,
    records: int,
) -> int:
    """Print the table and the figures; gives the exit status."""
    failed = Counter(name for name, _ in tally.failures)
    print(f"{'ending':<44}{'calls':>7}{'failed':>8}")
    for name, count in sorted(tally.calls.items()):
        print(f"{name:<44}{count:>7}{failed[name]:>8}")
    calls = tally.calls.total()
    beyond = last.beyond(first)
    faults = [f"{name}: {count} left" for name, count in state.items() if count]
    faults += [
        f"{name}: {beyond[name]} more than before"
        for name in ("tasks", "handles", "child_handles")
        if beyond[name] > 0
    ]
    faults += [
        f"{name}: {-closed[name]} left when the phone was closed"
        for name in ("tasks", "handles")
        if closed[name] < 0
    ]
    allowed = SPARE_KB + MOST_KB_A_CALL * calls
    faults += [
        f"{name}: {beyond[name]} more than before"
        for name in ("memory_kb", "child_memory_kb")
        if beyond[name] > allowed
    ]
    if beyond["objects"] > SPARE_OBJECTS + MOST_OBJECTS_A_CALL * calls:
        most = ", ".join(f"{name} {count}" for name, count in gained.most_common(8))
        faults.append(f"objects: {beyond['objects']} more than before ({most})")
    print(f"{'held':<44}{'before':>10}{'after':>10}")
    for name in beyond:
        print(f"{name:<44}{getattr(first, name):>10}{getattr(last, name):>10}")
    for fault in faults:
        print(f"LEFT OVER {fault}")
    print(
        f"FIGURE day calls={calls} failed={len(tally.failures)} left_over={len(faults)} "
        f"records={records} memory_kb={beyond['memory_kb']} "
        f"media_memory_kb={beyond['child_memory_kb']} objects={beyond['objects']} "
        f"seconds={seconds:.0f}"
    )
    return 1 if faults or tally.failures else 0


def main() -> int:
    """Read the command line, and have a day."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Raw)
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long calls are made")
    parser.add_argument("--at-once", type=int, default=8, help="calls at once")
    parser.add_argument("--only", default="", help="only endings whose name holds this")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run(options, Path(folder)))


class _Raw(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of the description."""


if __name__ == "__main__":
    sys.exit(main())
