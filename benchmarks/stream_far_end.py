"""The far ends of streams for `streams.py`, in a process of its own: they play in real time.

    python benchmarks/stream_far_end.py LINE URL CALLS SECONDS

Each call sends silence with a loud frame every half second, plays what comes from a queue, sends
marks back, and keeps when what came. At the end one line of JSON has it all. Times are those of the
monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import sys
import time
import uuid
from typing import Any

import numpy as np
import websockets
from websockets.typing import Subprotocol

from qwen3tts_phone.streams.carriers.adapter import Message
from qwen3tts_rehearsal.carrier_dialects import DIALECTS
from tests.streams.carrier_side import CarrierSide

LOUD_EVERY = 25
"""Frames of 20 ms."""
FRAME_S = 0.02
MULAW = ("twilio", "telnyx", "plivo")
HEADER = struct.Struct(">BH")
UUID, SLIN24 = 0x01, 0x13


class AsteriskSide(CarrierSide):
    """Asterisk's WebSocket channel with ``c(slin24)f(json)``, by its documentation."""

    def __init__(self) -> None:
        super().__init__("asterisk")
        self.bytes_s = 48_000

    def begin(self) -> list[Message]:
        """MEDIA_START."""
        start = {
            "event": "MEDIA_START",
            "connection_id": str(uuid.uuid4()),
            "channel_id": f"pbx-{uuid.uuid4()}",
            "format": "slin24",
            "optimal_frame_size": 960,
            "ptime": 20,
        }
        return [json.dumps(start)]

    def says(self, data: bytes, number: int = 1) -> Message:
        """Sound is a message as it is."""
        return data

    def take(self, message: Message, now: float) -> None:
        """A command, or sound."""
        if isinstance(message, bytes):
            return super().take(message, now)
        found: dict[str, Any] = json.loads(message)
        if found["command"] == "FLUSH_MEDIA":
            return super().take('{"event":"clear"}', now)
        if found["command"] == "MARK_MEDIA":
            mark = {"event": "mark", "mark": {"name": found["correlation_id"]}}
            return super().take(json.dumps(mark), now)
        return None

    def _mark_back(self, name: str) -> Message:
        return json.dumps({"event": "MEDIA_MARK_PROCESSED", "correlation_id": name})


class Peer:
    """One call."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.side = AsteriskSide() if line == "asterisk" else CarrierSide(_known(line))
        if line == "audiosocket":
            self.side.bytes_s = 48_000
        self.port = 0
        """Its own, by which the other process knows the call."""
        self.loud_sent_at: list[float] = []
        self.loud_came_at: list[float] = []

    def frames(self) -> tuple[bytes, bytes]:
        """20 ms of silence and of noise, in the line's format."""
        size = round(self.side.bytes_s * FRAME_S)
        if self.line in MULAW:
            # The fixture of Telnyx is a call in A-law.
            quiet, loud = (b"\xd5", b"\x2a") if self.line == "telnyx" else (b"\xff", b"\x00")
            return quiet * size, loud * size
        return bytes(size), np.tile(np.array([20000, -20000], "<i2"), size // 4).tobytes()

    def came(self, message: Message, now: float) -> None:
        """Something of ours."""
        before = len(self.side.pieces)
        self.side.take(message, now)
        if len(self.side.pieces) > before and self._is_loud(self.side.pieces[-1].data):
            self.loud_came_at.append(now)

    def result(self) -> dict[str, Any]:
        """Arrival times."""
        side = self.side
        return {
            "port": self.port,
            "loud_sent_at": self.loud_sent_at,
            "loud_came_at": self.loud_came_at,
            "cleared_at": side.cleared_at,
            "most_queued_s": 0.0 if self.line == "audiosocket" else side.most_queued_s,
        }

    def _is_loud(self, data: bytes) -> bool:
        if self.line in MULAW:  # what is played there is mu-law
            return any(byte not in (0xFF, 0x7F) for byte in data[::7])
        return int(np.abs(np.frombuffer(data, "<i2").astype(int)).max(initial=0)) > 8


async def speaks(peer: Peer, send: Any, seconds: float) -> None:
    """The caller, in real time."""
    quiet, loud = peer.frames()
    origin = time.monotonic() + 0.001 * (id(peer) % 20)
    for number in range(1, round(seconds / FRAME_S) + 1):
        await asyncio.sleep(max(0.0, origin + number * FRAME_S - time.monotonic()))
        is_loud = number % LOUD_EVERY == 0
        if is_loud:
            peer.loud_sent_at.append(time.monotonic())
        await send(peer.side.says(loud if is_loud else quiet, number))
        for answer in peer.side.answers(time.monotonic()):
            await send(answer)


async def over_websocket(peer: Peer, url: str, seconds: float) -> None:
    """A call to its end."""
    wanted = DIALECTS[peer.line]().subprotocol
    async with websockets.connect(
        url, compression=None, subprotocols=[Subprotocol(wanted)] if wanted else None
    ) as socket:
        peer.port = socket.local_address[1]

        async def listens() -> None:
            async for message in socket:
                peer.came(message, time.monotonic())

        listening = asyncio.create_task(listens())
        with contextlib.suppress(websockets.ConnectionClosed):
            for message in peer.side.begin():
                await socket.send(message)
            await speaks(peer, socket.send, seconds)
        await socket.close()
        await listening


async def over_tcp(peer: Peer, url: str, seconds: float) -> None:
    """A call of AudioSocket to its end."""
    host, port = url.removeprefix("tcp://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    peer.port = writer.get_extra_info("sockname")[1]

    async def send(message: Message) -> None:
        assert isinstance(message, bytes)
        writer.write(HEADER.pack(SLIN24, len(message)) + message)

    async def listens() -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                kind, length = HEADER.unpack(await reader.readexactly(HEADER.size))
                data = await reader.readexactly(length)
                if kind == SLIN24:
                    peer.came(data, time.monotonic())

    writer.write(HEADER.pack(UUID, 16) + uuid.uuid4().bytes)
    listening = asyncio.create_task(listens())
    peer.side.says = lambda data, number=1: data  # type: ignore[method-assign]
    await speaks(peer, send, seconds)
    writer.close()
    await listening


def _known(line: str) -> str:
    return "vonage" if line == "audiosocket" else line


async def main(line: str, url: str, calls: int, seconds: float) -> None:
    """All calls concurrently."""
    peers = [Peer(line) for _ in range(calls)]
    over = over_tcp if line == "audiosocket" else over_websocket
    await asyncio.gather(*(over(peer, url, seconds) for peer in peers))
    print(json.dumps([peer.result() for peer in peers]), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
