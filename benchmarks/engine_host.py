"""The engine's thread beside a busy event loop: how late sound leaves, by the switch interval.

The real worker runs on a virtual GPU in real time: a wait sleeps without the interpreter's lock,
as ``cudaEventSynchronize`` does. Beside it an event loop carries ``--calls`` calls: each has work
every 100 ms and with each chunk of sound. After each wait the engine's thread must get the lock
back from the loop, which keeps it for the switch interval. *process* is the engine in a process of
its own: sound goes through shared memory, requests and places through a pipe.

- *late*: from the end of the device's work until the engine's thread runs again.
- *first*: from a request of an extra call to its first sound, in the engine, and in the event loop.
- *tick late*: of the calls' own work in the event loop.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory

from common import Bench
from gpu.load import Call, Load
from gpu.virtual_device import (
    MODEL,
    DeviceCosts,
    PromptOnly,
    RealClock,
    VirtualDevice,
    percentile,
)

from qwen3tts_engine.base import PcmChunk
from tests.tiny_models.published import PUBLISHED

INTERVALS_MS = (5.0, 1.0, 0.5, 0.1)
TICK_S = 0.1
PROBE_EVERY_S = 0.11
PROBE_S = 0.6
LONG_S = 600.0
RING_BYTES = 32 << 20
Heard = Callable[[int, float, bytes], None]
"""Call, when it was made, sound."""


def busy(seconds: float) -> None:
    """Work of the interpreter, as an event loop's callbacks are."""
    end = time.perf_counter() + seconds
    count = 0
    while time.perf_counter() < end:
        count += sum(range(20))


class LocalEngine:
    """Worker over a virtual GPU in real time, in a thread."""

    def __init__(self, slots: int, heard: Heard) -> None:
        self.clock = RealClock()
        device = VirtualDevice(DeviceCosts(), self.clock, slots=slots, silent_frames=0)
        self._load = Load(PromptOnly(PUBLISHED[MODEL]), device, clock=time.monotonic)
        self._load.on_sound = self._sound
        self._heard = heard
        self._numbers: dict[int, int] = {}
        self._running = self._load.running()

    def __enter__(self) -> LocalEngine:
        self._running.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.__exit__(None, None, None)

    def call(self, number: int, seconds: float) -> None:
        """Ask for an utterance."""
        # Its sound may come before this returns.
        self._asked = number
        call, _ = self._load.call(seconds)
        self._numbers[id(call)] = number

    def _sound(self, call: Call, chunk: PcmChunk) -> None:
        number = self._numbers.get(id(call), self._asked)
        self._heard(number, time.monotonic(), chunk.pcm)

    def late_ms(self) -> list[float]:
        """See RealClock, since the last call."""
        found, self.clock.late_s = self.clock.late_s, []
        return [1e3 * late for late in found]


def engine_process(slots: int, interval_s: float, pipe: Connection, memory: str) -> None:
    """Serve requests of the pipe until it is closed."""
    sys.setswitchinterval(interval_s)
    ring = SharedMemory(memory)
    at = 0

    def heard(number: int, made: float, pcm: bytes) -> None:
        nonlocal at
        if at + len(pcm) > RING_BYTES:
            at = 0
        assert ring.buf is not None
        ring.buf[at : at + len(pcm)] = pcm
        pipe.send((number, made, at, len(pcm)))
        at += len(pcm)

    with LocalEngine(slots, heard) as engine:
        pipe.send("ready")
        while (request := pipe.recv()) is not None:
            if request == "late":
                pipe.send(engine.late_ms())
            else:
                engine.call(*request)
    ring.close()
    pipe.close()


class RemoteEngine:
    """The same in a process."""

    def __init__(self, slots: int, interval_s: float, heard: Heard) -> None:
        self._heard = heard
        self._memory = SharedMemory(create=True, size=RING_BYTES)
        self._pipe, other = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(
            target=engine_process, args=(slots, interval_s, other, self._memory.name)
        )
        self._late: list[float] = []
        self._told = threading.Event()

    def __enter__(self) -> RemoteEngine:
        self._process.start()
        self._pipe.recv()
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._arrived)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._pipe.fileno())
        self._pipe.send(None)
        self._process.join(30)
        self._memory.close()
        self._memory.unlink()

    def call(self, number: int, seconds: float) -> None:
        """Ask for an utterance."""
        self._pipe.send((number, seconds))

    def _arrived(self) -> None:
        while self._pipe.poll():
            message = self._pipe.recv()
            if isinstance(message, list):
                self._late = message
                self._told.set()
                continue
            number, made, at, size = message
            assert self._memory.buf is not None
            self._heard(number, made, bytes(self._memory.buf[at : at + size]))

    def late_ms(self) -> list[float]:
        """See LocalEngine; called from the event loop."""
        self._told.clear()
        self._pipe.send("late")
        while not self._told.is_set():
            if self._pipe.poll(5):
                self._arrived()
        return self._late


@dataclass
class Result:
    """Milliseconds."""

    late: list[float] = field(default_factory=list)
    made: list[float] = field(default_factory=list)
    """First sound of the extra calls, in the engine."""
    reached: list[float] = field(default_factory=list)
    """The same, in the event loop."""
    ticks: list[float] = field(default_factory=list)

    def row(self) -> list[float]:
        """Medians and 95th percentiles."""
        several = (self.late, self.made, self.reached, self.ticks)
        return [round(percentile(each, share), 2) for each in several for share in (0.5, 0.95)]


async def measured(
    args: argparse.Namespace, interval_s: float, *, process: bool, probes: int
) -> Result:
    """Carry the calls, and ask for extra ones."""
    result = Result()
    loop = asyncio.get_running_loop()
    asked: dict[int, float] = {}

    def in_loop(number: int, made: float, pcm: bytes) -> None:
        busy(args.chunk_us * 1e-6)
        began = asked.pop(number, None)
        if began is not None:
            result.made.append(1e3 * (made - began))
            result.reached.append(1e3 * (time.monotonic() - began))

    def from_thread(number: int, made: float, pcm: bytes) -> None:
        loop.call_soon_threadsafe(in_loop, number, made, pcm)

    async def ticking(number: int) -> None:
        due = time.monotonic() + TICK_S * number / args.calls
        while True:
            await asyncio.sleep(due - time.monotonic())
            result.ticks.append(1e3 * max(0.0, time.monotonic() - due))
            busy(args.tick_us * 1e-6)
            due += TICK_S

    slots = args.calls + 32
    engine = (
        RemoteEngine(slots, interval_s, in_loop) if process else LocalEngine(slots, from_thread)
    )
    with engine:
        tasks = [loop.create_task(ticking(number)) for number in range(args.calls)]
        for number in range(args.calls):
            engine.call(number, LONG_S)
            await asyncio.sleep(0.01)
        await asyncio.sleep(1.5)
        engine.late_ms()
        result.ticks.clear()
        for number in range(args.calls, args.calls + probes):
            asked[number] = time.monotonic()
            engine.call(number, PROBE_S)
            await asyncio.sleep(PROBE_EVERY_S)
        await asyncio.sleep(1.0)
        result.late = engine.late_ms()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return result


def main() -> None:
    """Measure each interval, and the process."""
    parser = argparse.ArgumentParser(description="the engine's thread beside a busy event loop")
    add = parser.add_argument
    add("--calls", type=int, default=160, help="calls that speak")
    add("--tick-us", type=float, default=200.0, help="work of a call each 100 ms, microseconds")
    add("--chunk-us", type=float, default=200.0, help="work of a chunk of sound in the loop")
    add("--interval", type=float, nargs="*", metavar="MS", help="of switches; default: four")
    add("--probes", type=int, default=80, help="extra calls")
    bench = Bench("engine_host", "the engine's thread beside a busy event loop", parser)
    args = bench.args
    probes = 20 if bench.quick else args.probes
    before = sys.getswitchinterval()
    rows: list[list[object]] = []
    variants = [*((False, each) for each in args.interval or INTERVALS_MS), (True, 5.0)]
    figures: dict[str, float] = {}
    for process, interval_ms in variants:
        sys.setswitchinterval(interval_ms * 1e-3)
        found = asyncio.run(measured(args, interval_ms * 1e-3, process=process, probes=probes))
        where = "process" if process else "thread"
        rows.append([where, interval_ms, *found.row()])
        bench.note(" ".join(map(str, rows[-1])))
        name = "process" if process else f"{interval_ms:g}ms".replace(".", "")
        figures[f"late_ms_p50_{name}"] = round(percentile(found.late, 0.5), 2)
        figures[f"first_ms_p95_{name}"] = round(percentile(found.reached, 0.95), 1)
    sys.setswitchinterval(before)
    columns = ["engine", "switch interval ms"]
    for what in ("late", "first, made", "first, in loop", "tick late"):
        columns += [f"{what} p50", f"{what} p95"]
    bench.table(f"{args.calls} calls, ms", columns, rows)
    bench.figure(**figures)


if __name__ == "__main__":
    main()
