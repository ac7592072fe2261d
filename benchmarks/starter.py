"""An opening from memory over a real WebSocket: from ``context.open`` to the first sound.

The server, its engine and the memory of openings run in a process of their own; one persistent
connection asks for the same text again and again. Rounds alternate:

- *hit*: the text begins with an opening that is kept, and goes on;
- *miss*: the same request with a seed, for which nothing is kept: the engine makes the clause;
- *in deltas*: a hit whose text comes in tokens, all in one batch.

Open, text and end are sent in one go; the first sound counts when its message has been read. The
rest of a hit is waited for, then it is cancelled: *gap* is how much later than the end of the
opening's sound (played from when it came) the first sound of the rest was there; 0 or less: no gap.
*step* is the largest change between samples within 5 ms of the joint, beside the 99th percentile of
the opening's.

Engines: eSpeak NG (miss: a few milliseconds of CPU), and where torch is installed a tiny checkpoint
of Qwen3-TTS (miss: prefill, a frame of all codebooks, codec; the real model takes longer). The
figures are those of the last engine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import logging
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import numpy as np
from common import Bench
from server_engines import make_engine

from qwen3tts_engine.starter.engine import StarterEngine, StarterSettings
from qwen3tts_server.run import running_server
from qwen3tts_server.settings import ServerSettings
from qwen3tts_wire.client import Audio, SpeechClient

OPENING = "One moment, please."
TEXT = f"{OPENING} I will look that up for you, and then we can talk about the rest."
HZ = 24_000
LIMIT_MS = 10.0
"""Time limit of a hit."""
NEAR = HZ // 200
REST_S = 0.05
"""Between contexts: the engine is idle when one is opened."""


@dataclass
class Heard:
    """One context."""

    first_ms: float
    """From open to the first sound."""
    gap_ms: float | None
    """Lateness of the rest; None where all is one clause."""
    step: float | None = None
    """Largest change near the joint over the 99th percentile of all."""


@dataclass
class Figures:
    """All rounds of one way."""

    first_ms: list[float] = field(default_factory=list)
    gap_ms: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)

    def add(self, heard: Heard) -> None:
        """One round."""
        self.first_ms.append(heard.first_ms)
        if heard.gap_ms is not None:
            self.gap_ms.append(heard.gap_ms)
        if heard.step is not None:
            self.steps.append(heard.step)


async def serve(engine: str) -> None:
    """The server's process: its address on the first line, then until its input ends."""
    memory = StarterEngine(make_engine(engine), StarterSettings(phrases=(OPENING,)))
    async with running_server(memory, settings=ServerSettings()) as server:
        print(server.url, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


@contextlib.asynccontextmanager
async def server_process(engine: str) -> AsyncIterator[str]:
    """The address of a server in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        *("--serve", engine),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        url = (await process.stdout.readline()).decode().strip()
        if not url:
            raise RuntimeError(f"the server with the engine {engine} did not start")
        yield url
    finally:
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 20)
        except TimeoutError:
            process.kill()
            await process.wait()


async def hear(client: SpeechClient, *, seed: int | None, deltas: int = 1) -> Heard:
    """Ask for the text; listen until the rest of it comes."""
    size = -(-len(TEXT) // deltas)
    began = time.monotonic()
    context = await client.open(seed=seed, window_ms=10_000, lead_ms=10_000)
    for begin in range(0, len(TEXT), size):
        await context.append(TEXT[begin : begin + size])
    await context.end()
    first_at = rest_at = 0.0
    joint = 0
    parts: list[bytes] = []
    async for event in context:
        if not isinstance(event, Audio):
            continue
        if event.clause_start and parts:
            joint, rest_at = event.offset, event.received_at
        first_at = first_at or event.received_at
        parts.append(event.pcm)
        if joint or seed is not None:
            break
    await context.cancel()
    await asyncio.sleep(REST_S)
    gap_ms = step = None
    if joint:
        gap_ms = (rest_at - first_at - joint / HZ) * 1000
        changes = np.abs(np.diff(np.frombuffer(b"".join(parts), "<i2").astype(np.int32)))
        usual = float(np.percentile(changes[:joint], 99))
        step = float(np.max(changes[joint - NEAR : joint + NEAR])) / max(1.0, usual)
    return Heard((first_at - began) * 1000, gap_ms, step)


async def measure(engine: str, rounds: int) -> dict[str, Figures]:
    """All ways in turn."""
    found = {"hit": Figures(), "hit, in deltas": Figures(), "miss": Figures()}
    async with server_process(engine) as url, await SpeechClient.connect(url) as client:
        for number in range(-3, rounds):
            said = {
                "hit": await hear(client, seed=None),
                "hit, in deltas": await hear(client, seed=None, deltas=len(TEXT) // 4),
                "miss": await hear(client, seed=1 + number % 7),
            }
            if number >= 0:  # the first rounds warm everything
                for way, heard in said.items():
                    found[way].add(heard)
    return found


def p95(values: list[float]) -> float:
    """The 95th percentile."""
    return float(np.percentile(values, 95))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", metavar="ENGINE", help=argparse.SUPPRESS)
    bench = Bench("starter", "an opening from memory, and one that is made", parser)
    logging.basicConfig(level=logging.ERROR)
    if bench.args.serve:
        asyncio.run(serve(bench.args.serve))
        return
    engines = ["embedded"]
    if importlib.util.find_spec("torch") is not None:
        engines.append("tiny")
    rows: list[list[object]] = []
    figures: dict[str, float | str] = {}
    for engine in engines:
        try:
            found = asyncio.run(measure(engine, 10 if bench.quick else 60))
        except Exception as error:
            bench.failed(engine, error)
            continue
        for way, each in found.items():
            kept = way != "miss"
            rows.append(
                [
                    f"{engine}, {way}",
                    min(each.first_ms),
                    statistics.median(each.first_ms),
                    p95(each.first_ms),
                    LIMIT_MS if kept else "-",
                    max(each.gap_ms) if kept else "-",
                    max(each.steps) if kept else "-",
                ]
            )
        hits = [found["hit"], found["hit, in deltas"]]
        gaps = [gap for each in hits for gap in each.gap_ms]
        figures = {
            "hit_ms_p50": statistics.median(found["hit"].first_ms),
            "hit_ms_p95": p95(found["hit"].first_ms),
            "miss_ms_p50": statistics.median(found["miss"].first_ms),
            "joint_gap_ms": max(0.0, *gaps),
            "engine": engine,
        }
    columns = [
        "engine, way",
        "first best ms",
        "p50 ms",
        "p95 ms",
        "limit ms",
        "gap max ms",
        "step/p99 max",
    ]
    bench.table("from context.open to the first sound", columns, rows)
    bench.figure(**figures)


if __name__ == "__main__":
    main()
