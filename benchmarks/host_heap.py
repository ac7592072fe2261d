"""The hole that a collection of garbage makes in a call, with and without `qwen3tts_wire.process`.

A loop has a frame to hand over every 20 ms, in a process with as many objects as an agent host has
loaded, and what a host does meanwhile makes more of them, and garbage. The longest time without a
frame, less its 20 ms, is what a caller would miss beyond what lies ahead of the clock (60 ms); the
longest collection is in time of the processor, which other programs do not disturb.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from collections import deque

from common import Bench

from qwen3tts_wire.process import Heap

FRAME_S = 0.02


def loaded(objects: int) -> list[dict[str, list[int]]]:
    """Objects that refer to each other, as modules and schemas do."""
    return [{"name": [number]} for number in range(objects // 2)]


class Collections:
    """Durations of collections, milliseconds of processor time."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self._begun = 0.0

    def note(self, phase: str, _: dict[str, int]) -> None:
        """A collection begins, or ends."""
        now = time.thread_time()
        if phase == "start":
            self._begun = now
        else:
            self.longest_ms = max(self.longest_ms, 1000 * (now - self._begun))


async def measured(seconds: float) -> dict[str, float]:
    """The longest gap and the longest collection, ms, while others make objects."""
    collections = Collections()
    gc.callbacks.append(collections.note)
    living: deque[dict[str, list[object]]] = deque(maxlen=30_000)
    begun = last = time.perf_counter()
    longest, frames = 0.0, 0
    while last - begun < seconds:
        for _ in range(1_000):
            turn: dict[str, list[object]] = {"turn": []}
            turn["turn"].append(turn)  # a ring: only the collector frees it
            living.append(turn)
        frames += 1
        await asyncio.sleep(max(0.0, begun + frames * FRAME_S - time.perf_counter()))
        now = time.perf_counter()
        longest, last = max(longest, now - last - FRAME_S), now
    gc.callbacks.remove(collections.note)
    return {"gap_ms": round(1000 * longest, 1), "collection_ms": round(collections.longest_ms, 1)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objects", type=int, default=300_000)
    bench = Bench("host_heap", __doc__.splitlines()[0], parser)
    seconds = 4.0 if bench.quick else 20.0
    kept = loaded(bench.args.objects)
    gc.collect()
    objects = len(gc.get_objects())
    without = asyncio.run(measured(seconds))
    heap = Heap()
    heap.hold()
    held = asyncio.run(measured(seconds))
    heap.release()
    assert kept, "they are there until the end"
    bench.table(
        f"{objects} objects, {seconds:.0f} s each",
        ["garbage collector", "longest gap, ms", "longest collection, ms"],
        [
            ["Python's default", without["gap_ms"], without["collection_ms"]],
            ["held", held["gap_ms"], held["collection_ms"]],
        ],
    )
    bench.figure(
        objects=objects,
        **held,
        **{f"{name}_default": value for name, value in without.items()},
    )


if __name__ == "__main__":
    main()
