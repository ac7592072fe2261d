"""A bad line between two phones: their sound goes through a relay that loses and delays packets.

The relay for sound (benchmarks/bad_network.py) is a process of its own. In front of it stands a
small SIP relay, here on the loop, which rewrites ports: each phone sees the other at a port of the
relay's, and sends its sound there. SIP itself is passed on whole.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

bad_network: Any = importlib.import_module("benchmarks.bad_network")
Trouble: Any = bad_network.Trouble

PORT = re.compile(rb"(?<=127\.0\.0\.1:)\d+")
AUDIO_PORT = re.compile(rb"(?m)^(m=audio )([1-9]\d*)")
QUESTION = re.compile(rb"(?mi)^CSeq\s*:\s*\d+\s+OPTIONS\b")
LENGTH = re.compile(rb"(?mi)^(Content-Length|l)(\s*:\s*)\d+")
SOUND_OF_FIRST, SOUND_OF_SECOND = 0, 2
"""Flows of RTP by who sends them; RTCP is the flow after each."""


@functools.cache
def netem_works() -> bool:
    """Whether this machine has network namespaces, may make them, and its kernel has netem."""
    complaint = bad_network.namespaces()
    bad_network.remove_namespaces()
    return not complaint


@dataclass(frozen=True)
class Passed:
    """What became of one side's packets of sound."""

    came: int
    lost: int

    @property
    def share(self) -> float:
        """Share that was lost."""
        return self.lost / self.came


class BadLine:
    """The line between two phones at 127.0.0.1, while its block runs.

    ``first_uri`` is where the second reaches the first, ``second_uri`` the other way round.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.ports: list[int] = []
        """Of the relay for sound, one for each flow."""
        self._sides: list[_Side] = []
        self.first_uri = self.second_uri = ""
        self.passed: tuple[Passed, Passed] | None = None
        """What the first and the second sent, once the block has ended."""

    async def join(self, first: str, second: str) -> None:
        """Stand between two phones, given by their URIs."""
        loop = asyncio.get_running_loop()
        for number in (0, 1):
            _, side = await loop.create_datagram_endpoint(
                functools.partial(_Side, self, number), local_addr=("127.0.0.1", 0)
            )
            self._sides.append(side)
        # The first phone talks to side 0, which stands for the second.
        for side, uri in zip(self._sides, (first, second), strict=True):
            side.phone_port = int(re.findall(r":(\d+)", uri)[-1])
        self.first_uri = first.replace(f":{self._sides[0].phone_port}", f":{self._sides[1].port}")
        self.second_uri = second.replace(f":{self._sides[1].phone_port}", f":{self._sides[0].port}")

    def silence(self, seconds: float) -> None:
        """Let nothing pass for so long, either way, RTCP neither."""
        self._change(silent_s=seconds)

    def pass_on(self, message: bytes, number: int) -> None:
        """A SIP message of phone ``number`` goes to the other phone."""
        here, there = self._sides[number], self._sides[1 - number]
        ports = {here.phone_port: there.port, here.port: there.phone_port}
        head, end, body = message.partition(b"\r\n\r\n")
        head = PORT.sub(lambda found: b"%d" % ports.get(int(found[0]), int(found[0])), head)
        # An answer to OPTIONS describes no call: its port is nobody's.
        if not QUESTION.search(head):
            body = AUDIO_PORT.sub(functools.partial(self._sound_port, number), body)
        head = LENGTH.sub(rb"\g<1>\g<2>%d" % len(body), head)
        there.transport.sendto(head + end + body, ("127.0.0.1", there.phone_port))

    def _sound_port(self, number: int, found: re.Match[bytes]) -> bytes:
        """The port that the other phone sends to, in place of this one's own."""
        # What the other one sends goes on to the port that this one has told.
        flow = SOUND_OF_SECOND if number == 0 else SOUND_OF_FIRST
        told = int(found[2])
        self._change(flow=flow, port=told)
        self._change(flow=flow + 1, port=told + 1)
        return found[1] + b"%d" % self.ports[flow]

    def _change(self, **change: float) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(change).encode() + b"\n")

    def leave(self) -> None:
        """Pass no more SIP on."""
        for side in self._sides:
            side.transport.close()

    async def close(self) -> None:
        """End the relay for sound; ``passed`` is known then."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        output, _ = await self._process.communicate()
        counts = json.loads(output)
        self.passed = Passed(*counts[SOUND_OF_FIRST]), Passed(*counts[SOUND_OF_SECOND])


class _Side(asyncio.DatagramProtocol):
    """One phone's side of the SIP relay."""

    transport: asyncio.DatagramTransport
    phone_port: int

    def __init__(self, line: BadLine, number: int) -> None:
        self._line = line
        self._number = number

    @property
    def port(self) -> int:
        port: int = self.transport.get_extra_info("sockname")[1]
        return port

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._line.pass_on(data, self._number)


@asynccontextmanager
async def bad_line(trouble: Any, *, seed: int = 1) -> AsyncIterator[BadLine]:
    """A line with this trouble both ways, by a fixed seed; `BadLine.join` puts it in place."""
    flows = [
        {"trouble": asdict(trouble), "seed": 10 * seed + number, "leaves_by": (number + 2) % 4}
        for number in range(4)
    ]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        bad_network.__file__,
        json.dumps({"flows": flows, "pairs": True}),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    line = BadLine(process)
    try:
        async with asyncio.timeout(10):
            line.ports = json.loads(await process.stdout.readline())
        yield line
        await line.close()
    finally:
        line.leave()
        if process.returncode is None:
            process.kill()
            await process.wait()
