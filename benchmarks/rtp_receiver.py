"""A receiver of RTP in a process of its own: when each packet came, by the kernel's time stamps."""

from __future__ import annotations

import array
import itertools
import os
import select
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

PTIME_S = 0.02
TICKS = 160
"""Timestamp ticks of 20 ms at 8 kHz."""
HEADER = struct.Struct("!BBHII")
STAMP = struct.Struct("@qq")
SO_TIMESTAMPNS = 35
SO_RCVBUFFORCE = 33


class Lateness(NamedTuple):
    """One run at the receiver; times in ms."""

    calls: int
    packets: int
    p50: float
    p99: float
    p999: float
    worst: float
    gaps: int
    drift_ppm: float


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
    talk: list[int] = []  # ports that are talked to, a fifth of them every 4 ms
    turn = 0
    due = time.monotonic()
    while True:
        while talk and due <= time.monotonic():
            for index in range(turn % 5, len(talk), 5):
                count = turn // 5
                header = HEADER.pack(0x80, 0, count & 0xFFFF, count * TICKS, index)
                sock.sendto(header + b"\x55" * TICKS, ("127.0.0.1", talk[index]))
            turn += 1
            due += 0.004
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
        command = os.read(0, 65536)
        if command.startswith(b"talk"):
            talk = [int(port) for port in command.split()[1:]]
            due = time.monotonic()
        elif command == b"begin\n":
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
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self.port = int(self._read_line())
        self.pid = self._process.pid

    def talk(self, ports: Sequence[int]) -> None:
        """Send a stream of its own to each of these ports from now on."""
        self._write(b"talk " + b" ".join(str(port).encode() for port in ports) + b"\n")

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


def tenth(values: list[float]) -> float:
    """The value that a tenth of all are below."""
    return sorted(values)[len(values) // 10]


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
        gaps += sum((b[1] - a[1]) % (1 << 32) > TICKS for a, b in itertools.pairwise(packets))
        earliest = min(off)
        late += [value - earliest for value in off]
        third = len(off) // 3
        if third:
            # The early packets show the clock, the late ones the machine.
            moved = tenth(off[-third:]) - tenth(off[:third])
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


if __name__ == "__main__":
    receive()
