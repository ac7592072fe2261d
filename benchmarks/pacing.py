"""How exactly calls are paced: lateness against the ideal 20 ms grid, gaps, drift, CPU.

A receiver in a process of its own reads the kernel's time stamps of what is sent. The media process
is fed through its rings by this process, once idle and once with a Python thread that burns CPU in
it; beside it, in the same busy process, the two usual ways: asyncio tasks on absolute deadlines, and
asyncio tasks that sleep 20 ms between frames.
"""

from __future__ import annotations

import argparse
import array
import asyncio
import contextlib
import os
import select
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from common import Bench

from qwen3tts_pacer import Frame
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.process import MediaProcess
from qwen3tts_phone.media.types import LegSpec, RemoteMedia

PTIME_S = 0.02
TICKS = 160
SAMPLES = 480  # of a frame at 24 kHz
HEADER = struct.Struct("!BBHII")
STAMP = struct.Struct("@qq")
SO_TIMESTAMPNS = 35
SO_RCVBUFFORCE = 33
SETTLE_S = 1.0  # after the first packet, before anything is measured


class Lateness(NamedTuple):
    """What a run looked like at the receiver; times in ms."""

    calls: int
    packets: int
    p50: float
    p99: float
    p999: float
    worst: float
    gaps: int
    drift_ppm: float


# --- the receiver's process ---------------------------------------------------------------------


def receive() -> None:
    """Collect (stream, sequence, timestamp, arrival) until standard input says ``end``."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
    except PermissionError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
    sock.setblocking(False)
    sys.stdout.buffer.write(f"{sock.getsockname()[1]}\n".encode())
    sys.stdout.buffer.flush()
    rows = array.array("Q")
    space = socket.CMSG_SPACE(STAMP.size)
    while True:
        commands, _, _ = select.select([0], [], [], 0.004)
        while True:
            try:
                data, ancillary, _, _ = sock.recvmsg(2048, space)
            except BlockingIOError:
                break
            _, _, sequence, timestamp, ssrc = HEADER.unpack_from(data)
            seconds, nanoseconds = STAMP.unpack_from(ancillary[0][2])
            rows.extend((ssrc, sequence, timestamp, seconds * 1_000_000_000 + nanoseconds))
        if not commands:
            continue
        command = os.read(0, 16)
        if command == b"begin\n":
            del rows[:]
        elif command == b"end\n":
            body = rows.tobytes()
            sys.stdout.buffer.write(len(body).to_bytes(8, "little") + body)
            sys.stdout.buffer.flush()
        else:
            return


class Receiver:
    """The receiver's process, seen from here."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--receive"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self.port = int(self._read_line())

    def begin(self) -> None:
        """Forget what has come."""
        self._write(b"begin\n")

    def end(self) -> array.array[int]:
        """Four numbers for each packet since `begin`."""
        self._write(b"end\n")
        size = int.from_bytes(self._read(8), "little")
        rows = array.array("Q")
        rows.frombytes(self._read(size))
        return rows

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)

    def _read_line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            line += self._read(1)
        return line

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        parts = []
        while size:
            part = self._process.stdout.read(size)
            if not part:
                raise RuntimeError("the receiver ended")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def judge(rows: array.array[int]) -> Lateness:
    """Fit each stream to its own grid, by its earliest packet, and pool the lateness."""
    streams: dict[int, list[tuple[int, int, int]]] = {}
    for index in range(0, len(rows), 4):
        ssrc, sequence, timestamp, stamp = rows[index : index + 4]
        streams.setdefault(ssrc, []).append((sequence, timestamp, stamp))
    late: list[float] = []
    gaps = 0
    drifts = []
    for packets in streams.values():
        _, first_timestamp, first_stamp = packets[0]
        off = []
        previous = packets[0][0] - 1
        for sequence, timestamp, stamp in packets:
            slot = ((timestamp - first_timestamp) % (1 << 32)) // TICKS
            off.append((stamp - first_stamp) / 1e6 - slot * PTIME_S * 1000)
            gaps += (sequence - previous - 1) % 65536
            previous = sequence
        spaces = zip(packets, packets[1:], strict=False)
        gaps += sum((b[1] - a[1]) % (1 << 32) > TICKS for a, b in spaces)
        earliest = min(off)
        late += [value - earliest for value in off]
        third = len(off) // 3
        if third:
            moved = statistics.median(off[-third:]) - statistics.median(off[:third])
            drifts.append(moved / (2 / 3 * len(off) * PTIME_S * 1000) * 1e6)
    late.sort()

    def at(share: float) -> float:
        return late[min(len(late) - 1, int(len(late) * share))] if late else float("nan")

    return Lateness(
        len(streams),
        len(late),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0),
        gaps,
        statistics.median(drifts) if drifts else 0.0,
    )


# --- what is measured -----------------------------------------------------------------------------


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
            await asyncio.sleep(0)
        written += 200


async def media(
    process: MediaProcess, receiver: Receiver, calls: int, seconds: float, busy: bool
) -> tuple[Lateness, float, int]:
    """The media process: lateness, CPU in % of a core a call, speech frames not sent."""
    legs = []
    remote = RemoteMedia("127.0.0.1", receiver.port)
    for _ in range(calls):
        leg = await process.open(LegSpec(timeout_s=0.0))
        legs.append(leg)
    for leg in legs:
        await leg.start(remote)
        leg.begin(1)
        leg.write(frames(1, 0, 100))
    with load(busy):
        feeding = asyncio.create_task(feed(legs, 100, seconds + SETTLE_S))
        await asyncio.sleep(SETTLE_S)
        receiver.begin()
        cpu, began = cpu_s(process.pid), time.monotonic()
        before = [leg.stats() for leg in legs]
        await asyncio.sleep(seconds)
        used, lasted = cpu_s(process.pid) - cpu, time.monotonic() - began
        after = [leg.stats() for leg in legs]
        rows = receiver.end()
        feeding.cancel()
    silent = sum(
        (b.sent - a.sent) - (b.speech_sent - a.speech_sent)
        for a, b in zip(before, after, strict=True)
    )
    for leg in legs:
        await leg.close()
    return judge(rows), used / lasted / calls * 100, silent


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
        counts, seconds, peer_seconds = [10, 200], 5.0, 4.0
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
    silent = 0
    hardest: tuple[Lateness, float] | None = None
    async with await MediaProcess.start() as process:
        granted = process.rt
        for busy in (False, True):
            for calls in counts:
                seen, cpu, missed = await media(process, receiver, calls, seconds, busy)
                row(f"media process ({granted})", busy, seen, cpu)
                silent += missed
                hardest = (seen, cpu)
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
    bench.note(f"speech frames replaced by silence: {silent}; packets of 20 ms, PCMU")
    bench.note("facts of others: Asterisk p50 0.03, p99 0.2 ms; baresip p50 2.3, p99 5.9 ms")
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
    if sys.argv[1:] == ["--receive"]:
        receive()
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run")
    parser.add_argument("--calls", type=int, nargs="*", help="instead of 1 10 50 100 200")
    parser.add_argument("--no-peers", action="store_true", help="only the media process")
    asyncio.run(measure(Bench("pacing", str(__doc__), parser)))


if __name__ == "__main__":
    main()
