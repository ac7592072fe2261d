"""A telephone's sound in a process of its own: it talks, it hears, and part of it comes back.

One packet of mu-law leaves every 20 ms on absolute deadlines, with what is to be said, a noise that
does not end, and the echo of what came. When each packet came is the kernel's time stamp; when one
left, the moment before it was handed over. All times are this machine's monotonic clock, in ns.

The process ends when its standard input does. Each line there is an order in JSON:

    {"to": port}                     talk to this port of 127.0.0.1
    {"noise": "samples"}             from now on, again and again; "" = none
    {"echo": [down_db, delay_ms]}    null = none
    {"say": id, "samples": "samples"}

with samples as int16 at 8 kHz in base64; and each line of its output is what happened:

    {"port": n}                      where it hears
    {"said": id, "at": ns}           the first packet of it leaves; its samples end at ``at``
    {"came": [[ns, first, last, timestamp], ...]}
                                     packets: the first and last sample of each with sound, or -1
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FRAME = 160
"""20 ms at 8 kHz."""
FRAME_NS = 20_000_000
SILENT_PEAK = 8
"""Samples up to the smallest level of mu-law are silence."""
HEADER = struct.Struct("!BBHII")
STAMP = struct.Struct("@qq")
SO_TIMESTAMPNS = 35
"""Not in the socket module; Linux, asm-generic/socket.h."""
TELL_NS = 40_000_000
"""Interval of reports."""


class Talker:
    """The process itself."""

    def __init__(self) -> None:
        from line_sounds import EchoPath

        self._new_echo = EchoPath
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.bind(("127.0.0.1", 0))
        self._sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._sock.setblocking(False)
        self._fileno = self._sock.fileno()
        self._space = socket.CMSG_SPACE(STAMP.size)
        self._to: tuple[str, int] | None = None
        self._noise: NDArray[np.float64] = np.zeros(0)
        self._sayings: list[tuple[int, NDArray[np.float64], int]] = []
        """Each: its id, its samples, how many of them are said."""
        self._echo: EchoPath | None = None
        self._far: dict[int, NDArray[np.int16]] = {}
        """Packets by the number of the tick at which the phone plays them."""
        self._playing: tuple[int, int] | None = None
        """A timestamp that came, and the tick that it is played at."""
        self._tick = 0
        self._came: list[list[int]] = []
        self._input = b""

    def run(self) -> None:
        """Until standard input ends."""
        self._tell({"port": self._sock.getsockname()[1]})
        origin = time.monotonic_ns()
        told = origin
        while True:
            due = origin + self._tick * FRAME_NS
            while (left := due - time.monotonic_ns()) > 0:
                ready, _, _ = select.select([0, self._fileno], [], [], left / 1e9)
                if self._fileno in ready:
                    self._receive()
                if 0 in ready and not self._orders():
                    return
            self._send()
            self._tick += 1
            if self._came and time.monotonic_ns() - told > TELL_NS:
                self._tell({"came": self._came})
                self._came = []
                told = time.monotonic_ns()

    def _orders(self) -> bool:
        data = os.read(0, 1 << 20)
        self._input += data
        *lines, self._input = self._input.split(b"\n")
        for line in lines:
            self._obey(json.loads(line))
        return bool(data)

    def _obey(self, order: dict[str, Any]) -> None:
        if "to" in order:
            self._to = ("127.0.0.1", order["to"])
        elif "noise" in order:
            self._noise = _samples(order["noise"])
        elif "echo" in order:
            self._echo = self._new_echo(*order["echo"]) if order["echo"] is not None else None
        elif "say" in order:
            self._sayings.append((order["say"], _samples(order["samples"]), 0))

    def _receive(self) -> None:
        from qwen3tts_codecs.g711 import decode_ulaw

        with contextlib.suppress(BlockingIOError):
            while True:
                data, ancillary, _, _ = self._sock.recvmsg(2048, self._space)
                off_ns = time.time_ns() - time.monotonic_ns()
                if len(data) != HEADER.size + FRAME or data[1] & 0x7F:
                    continue
                samples = decode_ulaw(data[HEADER.size :])
                seconds, nanoseconds = STAMP.unpack_from(ancillary[0][2])
                timestamp = HEADER.unpack_from(data)[3]
                loud = np.flatnonzero(np.abs(samples.astype(np.int32)) > SILENT_PEAK)
                first, last = (int(loud[0]), int(loud[-1])) if len(loud) else (-1, -1)
                at = seconds * 1_000_000_000 + nanoseconds - off_ns
                self._came.append([at, first, last, timestamp])
                self._far[self._tick_of(timestamp)] = samples

    def _tick_of(self, timestamp: int) -> int:
        """Tick at which the phone plays it: on its own clock, a packet behind the first."""
        if self._playing is not None:
            first, tick = self._playing
            moved = ((timestamp - first + (1 << 31)) % (1 << 32) - (1 << 31)) // FRAME
            if -25 <= tick + moved - self._tick <= 25:
                return tick + moved
        self._playing = (timestamp, self._tick + 1)
        return self._tick + 1

    def _send(self) -> None:
        from qwen3tts_codecs.g711 import encode_ulaw

        wave = np.zeros(FRAME)
        if len(self._noise):
            at = self._tick * FRAME % len(self._noise)
            wave += np.take(self._noise, range(at, at + FRAME), mode="wrap")
        far = self._far.pop(self._tick, None)
        if self._echo is not None:
            wave += self._echo.push(np.zeros(FRAME, np.int16) if far is None else far)
        self._far = {tick: each for tick, each in self._far.items() if tick > self._tick}
        begun = []
        for place, (number, samples, said) in enumerate(self._sayings):
            piece = samples[said : said + FRAME]
            wave[: len(piece)] += piece
            self._sayings[place] = (number, samples, said + FRAME)
            if said == 0:
                begun.append(number)
        self._sayings = [each for each in self._sayings if each[2] < len(each[1])]
        payload = encode_ulaw(np.clip(np.rint(wave), -32768, 32767).astype(np.int16))
        header = HEADER.pack(
            0x80, 0, self._tick & 0xFFFF, self._tick * FRAME & 0xFFFFFFFF, 0x74616C6B
        )
        now = time.monotonic_ns()
        if self._to is not None:
            with contextlib.suppress(OSError):  # no listener any more
                self._sock.sendto(header + payload, self._to)
        for number in begun:
            self._tell({"said": number, "at": now})

    @staticmethod
    def _tell(what: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()


def _samples(text: str) -> NDArray[np.float64]:
    return np.frombuffer(base64.b64decode(text), "<i2").astype(np.float64)


# --- the other end of its pipes


@dataclass(frozen=True, slots=True)
class Came:
    """A packet that the talker got."""

    at: int
    """Arrival, ns of the monotonic clock."""
    first: int
    """The first sample with sound; -1 = none."""
    last: int
    timestamp: int


class Line:
    """The talker's process, seen from here.

    >>> async with Line.open() as line: line.talk_to(port); at = await line.say(samples)
    """

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process = process
        self.port = port
        """Receiving port, on 127.0.0.1."""
        self.packets: list[Came] = []
        """All that came."""
        self._number = 0
        self._said: dict[int, asyncio.Future[int]] = {}
        self._changed = asyncio.Condition()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls) -> AsyncIterator[Line]:
        """It runs as long as the block does."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            __file__,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "OMP_NUM_THREADS": "1",
            },
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            told = await process.stdout.readline()
            if not told:
                raise RuntimeError("the talker did not start")
            line = cls(process, json.loads(told)["port"])
            reading = asyncio.create_task(line._read())
            try:
                yield line
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
        finally:
            process.stdin.close()
            await process.wait()

    def talk_to(self, port: int) -> None:
        """Packets go there from now on."""
        self._order({"to": port})

    def noise(self, samples: NDArray[np.int16] | None) -> None:
        """Set the constant noise of the caller's place."""
        self._order({"noise": _text(np.zeros(0, np.int16) if samples is None else samples)})

    def echo(self, down_db: float | None, delay_ms: float = 0.0) -> None:
        """Set the echo of audio sent to the talker."""
        self._order({"echo": None if down_db is None else [down_db, delay_ms]})

    async def say(self, samples: NDArray[np.int16]) -> int:
        """Say this; when its first packet left (ns), whose samples end then."""
        self._number += 1
        said = self._said[self._number] = asyncio.get_running_loop().create_future()
        self._order({"say": self._number, "samples": _text(samples)})
        at: int = await said
        return at

    async def came(self, wanted: Any) -> None:
        """Wait until ``wanted(packets)`` is true of all packets."""
        async with self._changed:
            await self._changed.wait_for(lambda: wanted(self.packets))

    def _order(self, order: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            told = json.loads(line)
            if "said" in told:
                self._said.pop(told["said"]).set_result(told["at"])
            else:
                async with self._changed:
                    self.packets += [Came(*each) for each in told["came"]]
                    self._changed.notify_all()


def _text(samples: NDArray[np.int16]) -> str:
    return base64.b64encode(samples.astype("<i2").tobytes()).decode()


if __name__ == "__main__":
    Talker().run()
