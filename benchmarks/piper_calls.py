"""Calls that one core speaks for, with the natural voice, and eSpeak NG beside it.

- *calls*: each call speaks an utterance of short and long clauses in turn, listens for as long as
  it spoke, and speaks again. One worker, on one core; the calls and their players on the others. A
  player starts with the first sound and plays at the clock's rate: what comes after it has run
  dry is a gap. *first* is from the request to an utterance's first sound.
- *short among long*: downloads of long texts keep the worker busy all the time, and a new call
  asks for a short clause now and then. *alone* is the same clause on an idle worker.

Processor time is the worker's own (its ``/proc/PID/stat``), so that *real time* holds on a machine
that others use, too; first sounds and gaps hold only where the core is idle otherwise (*load*).
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from common import Bench

from qwen3tts_engine.base import SAMPLE_RATE, SynthesisRequest
from qwen3tts_engine.embedded.engine import EmbeddedEngine, EmbeddedSettings
from qwen3tts_engine.piper.engine import PiperEngine, PiperSettings
from qwen3tts_engine.playout import UNPACED_LEAD_MS, PlayoutLead

UTTERANCES = (
    ("Yes, of course.",),
    ("Good morning, this is the Riverside Clinic.", "How can I help you today?"),
    (
        "We are open from eight thirty to seventeen o'clock, Monday to Friday, and on the first"
        " Saturday of each month we see patients without an appointment until noon.",
        "Please bring your insurance card,",
        "and a list of what you take.",
    ),
    ("One moment, please.", "I am looking for a free appointment on Thursday afternoon."),
    (
        "If this is an emergency, hang up and dial one one two; if you would like to speak to"
        " a nurse instead, stay on the line, and somebody will be with you in a few minutes.",
    ),
)
SHORT = "Good morning."
LONG = " ".join(UTTERANCES[2])
LEVELS = (8, 12, 16)
"""Calls on one core."""
LATE_S = 0.002
"""A chunk this late is no gap: less than a player's own clock shows."""

Speaking = PiperEngine | EmbeddedEngine


@dataclass
class Tally:
    """One level's figures."""

    utterances: int = 0
    clauses: int = 0
    gaps: list[float] = field(default_factory=list)
    """Seconds of each."""
    first: list[float] = field(default_factory=list)
    """Seconds to the first sound of each utterance."""
    sound_s: float = 0.0


async def utter(engine: Speaking, clauses: Sequence[str], tally: Tally) -> float:
    """Speak one utterance to a player; seconds until it has been heard to its end."""
    lead, made, dry_at, began = PlayoutLead(), 0, 0.0, time.monotonic()
    for number, text in enumerate(clauses):
        request = SynthesisRequest(
            text, lead=lead, final=number + 1 == len(clauses), continued=number > 0
        )
        tally.clauses += 1
        async for chunk in engine.synthesize(request):
            now = time.monotonic()
            if not chunk.samples:
                continue
            if made == 0:
                tally.first.append(now - began)
                dry_at = now
            elif now > dry_at + LATE_S:
                tally.gaps.append(now - dry_at)
            dry_at = max(now, dry_at) + chunk.samples / SAMPLE_RATE
            made += chunk.samples
            lead.sent(chunk.samples, now)
    tally.utterances += 1
    tally.sound_s += made / SAMPLE_RATE
    return max(0.0, dry_at - time.monotonic())


async def call(engine: Speaking, seed: int, until: float, tally: Tally) -> None:
    """Speak and listen in turn."""
    drawn = random.Random(seed)
    await asyncio.sleep(drawn.uniform(0, 3))
    for number in itertools.count(seed):
        began = time.monotonic()
        if began >= until:
            return
        await asyncio.sleep(await utter(engine, UTTERANCES[number % len(UTTERANCES)], tally))
        await asyncio.sleep((time.monotonic() - began) * drawn.uniform(0.8, 1.2))


def cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    """Memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


@asynccontextmanager
async def started(engine: Speaking) -> AsyncIterator[int]:
    """An engine of one worker, on a core of its own; the worker's process."""
    await engine.start()
    cores = sorted(os.sched_getaffinity(0))
    try:
        (pid,) = engine.pids
        for task in os.listdir(f"/proc/{pid}/task"):
            os.sched_setaffinity(int(task), {cores[-1]})
        if len(cores) > 1:
            os.sched_setaffinity(0, set(cores[:-1]))
        async for _ in engine.synthesize(SynthesisRequest(SHORT)):
            pass  # what is done once
        yield pid
    finally:
        os.sched_setaffinity(0, set(cores))
        await engine.close()


async def level(engine: Speaking, pid: int, calls: int, seconds: float) -> tuple[Tally, float]:
    """Concurrent calls for a while; the worker's processor time."""
    tally, used = Tally(), cpu_s(pid)
    until = time.monotonic() + seconds
    async with asyncio.TaskGroup() as group:
        for number in range(calls):
            group.create_task(call(engine, number, until, tally))
    return tally, cpu_s(pid) - used


async def first_s(engine: Speaking) -> float:
    """Seconds to a short clause's first sound, for a new call."""
    began = time.monotonic()
    chunks = engine.synthesize(SynthesisRequest(SHORT, lead=PlayoutLead(), final=True))
    try:
        await anext(chunks)
        return time.monotonic() - began
    finally:
        await chunks.aclose()


async def among_long(engine: Speaking, downloads: int, times: int) -> list[float]:
    """First sounds of short clauses while downloads run."""

    async def download() -> None:
        while True:
            lead = PlayoutLead(UNPACED_LEAD_MS)
            async for _ in engine.synthesize(SynthesisRequest(LONG, lead=lead)):
                pass

    tasks = [asyncio.create_task(download()) for _ in range(downloads)]
    found = []
    try:
        for number in range(times):
            await asyncio.sleep(0.2 + 0.05 * (number % 5))
            found.append(await first_s(engine))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return found


def ms(seconds: Sequence[float], share: float) -> float:
    """A percentile in milliseconds; nothing measured: not a number."""
    return float(np.percentile(seconds, share)) * 1000 if seconds else float("nan")


async def main(bench: Bench) -> None:
    """Measure both engines."""
    seconds, times = (8.0, 10) if bench.quick else (30.0, 40)
    levels = LEVELS[:1] if bench.quick else LEVELS
    rows, waits = list[list[Any]](), list[list[Any]]()
    figures: dict[str, float] = {}
    engines: tuple[Speaking, ...] = (
        PiperEngine(PiperSettings(workers=1)),
        EmbeddedEngine(EmbeddedSettings(workers=1)),
    )
    for engine in engines:
        async with started(engine) as pid:
            for calls in levels if engine.name == "piper" else levels[:1]:
                tally, used = await level(engine, pid, calls, seconds)
                wall = f"{os.getloadavg()[0]:.1f}"
                rt, gap_ms = used / tally.sound_s, 1000 * sum(tally.gaps)
                rows.append(
                    [
                        f"{engine.name}, {calls} calls",
                        *(tally.utterances, tally.clauses, len(tally.gaps), gap_ms),
                        *(ms(tally.first, 50), ms(tally.first, 95), rt, rss_mb(pid), wall),
                    ]
                )
                if calls == 8:
                    figures |= {
                        f"gaps_8_{engine.name}": len(tally.gaps),
                        f"rt_{engine.name}": rt,
                        f"first_ms_p50_8_{engine.name}": ms(tally.first, 50),
                        f"rss_mb_{engine.name}": rss_mb(pid),
                    }
            alone = [await first_s(engine) for _ in range(times)]
            for name, found in (
                ("alone", alone),
                ("among 2 downloads", await among_long(engine, 2, times)),
                ("among 8 downloads", await among_long(engine, 8, times)),
            ):
                waits.append([f"{engine.name}, {name}", ms(found, 50), ms(found, 95)])
            figures[f"short_ms_p50_{engine.name}"] = waits[-3][1]
            figures[f"short_among_8_ms_p50_{engine.name}"] = waits[-1][1]
    bench.table(
        f"Calls on one core, each speaking half of the time, for {seconds:.0f} s",
        [
            *("", "utterances", "clauses", "gaps", "gaps ms", "first p50 ms", "p95 ms"),
            *("real time", "memory MB", "load"),
        ],
        rows,
    )
    bench.table("First sound of a short clause", ["", "p50 ms", "p95 ms"], waits)
    bench.figure(**figures)


if __name__ == "__main__":
    asyncio.run(main(Bench("piper_calls", __doc__.partition("\n")[0])))
