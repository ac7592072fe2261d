"""Precision of pacing: lateness against the ideal 20 ms grid, gaps, drift, CPU.

A receiver in a process of its own reads the kernel's time stamps of what is sent. The media
process is fed through its rings by this process, once idle and once with a Python thread that burns
CPU in it; beside it, in the same busy process, the two usual ways: asyncio tasks on absolute
deadlines, and asyncio tasks that sleep 20 ms between frames.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from common import Bench
from rtp_receiver import HEADER, PTIME_S, TICKS, Lateness, Receiver, judge

from qwen3tts_pacer import Frame
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.process import MediaProcess
from qwen3tts_phone.media.types import LegSpec, MediaSettings, RemoteMedia

SAMPLES = 480  # of a frame at 24 kHz
SETTLE_S = 1.0  # after the first packet, before anything is measured


@contextlib.contextmanager
def load(busy: bool) -> Iterator[None]:
    """A Python thread that never rests, in this process, if ``busy``."""
    stop = threading.Event()

    def burn() -> None:
        count = 0
        while not stop.is_set():
            count += 1

    thread = threading.Thread(target=burn)
    if busy:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if busy:
            thread.join()


def cpu_s(pid: int) -> float:
    """Seconds that a process has run on a core."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text("ascii").split()[0]) / 1e9
    except (FileNotFoundError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def frames(context: int, first: int, count: int) -> list[Frame]:
    """Speech as an encoder would write it: every frame with its faded variants."""
    made = []
    for index in range(first, first + count):
        body = bytes([index % 255]) * TICKS
        made.append(Frame(body, body, body, context, index * SAMPLES, (index + 1) * SAMPLES))
    return made


async def feed(legs: list[MediaLeg], written: int, seconds: float) -> None:
    """Keep every leg's ring two to six seconds ahead; ``written`` frames are in it already."""
    began = time.monotonic()
    total = int(seconds / PTIME_S) + 100
    while written < total:
        ahead = written - (time.monotonic() - began) / PTIME_S
        if ahead > 100:
            await asyncio.sleep(0.5)
            continue
        for leg in legs:
            leg.write(frames(1, written, 200))
            leg.read_inbound()
            await asyncio.sleep(0)
        written += 200


async def media(
    process: MediaProcess,
    receiver: Receiver,
    calls: int,
    seconds: float,
    busy: bool,
    duplex: bool = False,
) -> tuple[Lateness, float, int]:
    """The media process: lateness, CPU in % of a core a call, dry spells."""
    legs = []
    remote = RemoteMedia("127.0.0.1", receiver.port)
    for _ in range(calls):
        leg = await process.open(LegSpec(timeout_s=0.0))
        legs.append(leg)
    for leg in legs:
        await leg.start(remote)
        leg.begin(1)
        leg.write(frames(1, 0, 100))
    if duplex:
        receiver.talk([leg.local_port for leg in legs])
    with load(busy):
        feeding = asyncio.create_task(feed(legs, 100, seconds + SETTLE_S))
        await asyncio.sleep(SETTLE_S)
        receiver.begin()
        cpu, began = cpu_s(process.pid), time.monotonic()
        await asyncio.sleep(seconds)
        used, lasted = cpu_s(process.pid) - cpu, time.monotonic() - began
        rows = receiver.end()
        feeding.cancel()
    if duplex:
        receiver.talk([])
    dry = sum(leg.stats().starvations for leg in legs)
    for leg in legs:
        await leg.close()
    return judge(rows), used / lasted / calls * 100, dry


Paced = Callable[[socket.socket, int, int, float, float], Awaitable[None]]


async def deadline_call(
    sock: socket.socket, port: int, ssrc: int, first: float, until: float
) -> None:
    """One call as an asyncio task on absolute deadlines."""
    count = 0
    payload = b"\x55" * TICKS
    while True:
        await asyncio.sleep(max(0.0, first + count * PTIME_S - time.monotonic()))
        if time.monotonic() >= until:
            return
        packet = HEADER.pack(0x80, 0, count & 0xFFFF, count * TICKS, ssrc) + payload
        sock.sendto(packet, ("127.0.0.1", port))
        count += 1


async def sleep_call(sock: socket.socket, port: int, ssrc: int, first: float, until: float) -> None:
    """One call as an asyncio task that sleeps between frames."""
    await asyncio.sleep(max(0.0, first - time.monotonic()))
    count = 0
    payload = b"\x55" * TICKS
    while time.monotonic() < until:
        packet = HEADER.pack(0x80, 0, count & 0xFFFF, count * TICKS, ssrc) + payload
        sock.sendto(packet, ("127.0.0.1", port))
        count += 1
        await asyncio.sleep(PTIME_S)


async def peer(
    call: Paced, receiver: Receiver, calls: int, seconds: float, busy: bool
) -> tuple[Lateness, float]:
    """One of the usual ways, in this process: lateness, CPU in % of a core a call."""
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            for _ in range(calls)
        ]
        stack.enter_context(load(busy))
        start = time.monotonic() + 0.1
        receiver.begin()
        used = time.thread_time()
        await asyncio.gather(
            *(
                call(sock, receiver.port, index, start + index * PTIME_S / calls, start + seconds)
                for index, sock in enumerate(sockets)
            )
        )
        used = time.thread_time() - used
        rows = receiver.end()
    return judge(rows), used / seconds / calls * 100


async def measure(bench: Bench) -> None:
    """All rows, and the figures of the hardest."""
    counts = [1, 10, 50, 100, 200]
    seconds, peer_seconds = bench.args.seconds, 8.0
    if bench.quick:
        counts, seconds, peer_seconds = [10, 200], 5.0, 2.5
    if bench.args.calls:
        counts = bench.args.calls
    columns = [
        "calls",
        "load",
        "p50_ms",
        "p99_ms",
        "p99.9_ms",
        "max_ms",
        "gaps",
        "drift_ppm",
        "cpu_%/call",
    ]
    columns = ["way", *columns]
    rows: list[list[str | float | int]] = []

    def row(way: str, busy: bool, seen: Lateness, cpu: float) -> None:
        rows.append(
            [
                way,
                seen.calls,
                "busy" if busy else "idle",
                seen.p50,
                seen.p99,
                seen.p999,
                seen.worst,
                seen.gaps,
                seen.drift_ppm,
                cpu,
            ]
        )

    receiver = Receiver()
    dry = 0
    hardest: tuple[Lateness, float] | None = None
    async with await MediaProcess.start(MediaSettings(groups=bench.args.groups)) as process:
        granted = process.rt
        for busy in (False, True):
            for calls in counts:
                seen, cpu, missed = await media(process, receiver, calls, seconds, busy)
                row(f"media process ({granted})", busy, seen, cpu)
                dry += missed
                hardest = (seen, cpu)
        calls = max(counts)
        seen, cpu, missed = await media(process, receiver, calls, seconds, True, duplex=True)
        row(f"both ways ({granted})", True, seen, cpu)
        dry += missed
    asyncio_p99 = float("nan")
    if not bench.args.no_peers:
        for way, call in (("asyncio, deadlines", deadline_call), ("asyncio, sleeps", sleep_call)):
            for busy in (False, True):
                for calls in counts:
                    seen, cpu = await peer(call, receiver, calls, peer_seconds, busy)
                    row(way, busy, seen, cpu)
                    if call is deadline_call:
                        asyncio_p99 = seen.p99
    receiver.close()
    bench.table("lateness at the receiver, against each call's own 20 ms grid", columns, rows)
    bench.note(f"dry spells: {dry}; packets of 20 ms, PCMU")
    bench.note("aims at 200 calls, busy: p99 0.2 ms, max 5 ms, drift 5 ppm, 0.15 % of a core each")
    assert hardest is not None
    seen, cpu = hardest
    bench.figure(
        calls=seen.calls,
        p99_ms=seen.p99,
        max_ms=seen.worst,
        drift_ppm=seen.drift_ppm,
        cpu_pct_per_call=cpu,
        asyncio_p99_ms=asyncio_p99,
        rt=granted,
    )


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run")
    parser.add_argument("--calls", type=int, nargs="*", help="instead of 1 10 50 100 200")
    parser.add_argument("--groups", type=int, default=MediaSettings.groups, help="of calls")
    parser.add_argument("--no-peers", action="store_true", help="only the media process")
    asyncio.run(measure(Bench("pacing", str(__doc__), parser)))


if __name__ == "__main__":
    main()
