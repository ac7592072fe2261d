"""Asterisk's side of its two media protocols, as far as calls need it; on real sockets."""

from __future__ import annotations

import asyncio
import json
import struct
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

HEADER = struct.Struct(">BH")


class AudioSocketSide:
    """What ``AudioSocket()`` and ``Dial(AudioSocket/...)`` do over TCP."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.id = uuid.uuid4()
        self.heard = bytearray()
        self.kinds: list[int] = []
        self.hung_up = False
        self.closed = asyncio.Event()
        self._writer = writer
        self._reader = reader
        self._changed = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    def send(self, kind: int, payload: bytes = b"") -> None:
        self._writer.write(HEADER.pack(kind, len(payload)) + payload)

    def start(self) -> None:
        self.send(0x01, self.id.bytes)

    def speak(self, frames: int = 1, kind: int = 0x10, size: int = 320) -> None:
        for _ in range(frames):
            self.send(kind, b"\x00\x20" * (size // 2))

    async def until(self, true: Any) -> None:
        async with asyncio.timeout(20), self._changed:
            await self._changed.wait_for(true)

    async def _read(self) -> None:
        try:
            while True:
                kind, length = HEADER.unpack(await self._reader.readexactly(HEADER.size))
                payload = await self._reader.readexactly(length)
                self.kinds.append(kind)
                if kind == 0:
                    self.hung_up = True
                self.heard += payload
                async with self._changed:
                    self._changed.notify_all()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.closed.set()
            async with self._changed:
                self._changed.notify_all()

    async def close(self) -> None:
        self._writer.close()
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)


@asynccontextmanager
async def audiosocket(port: int) -> AsyncIterator[AudioSocketSide]:
    side = AudioSocketSide(*await asyncio.open_connection("127.0.0.1", port))
    try:
        yield side
    finally:
        await side.close()


class MediaSide:
    """The channel driver's end of a WebSocket: plays its queue, echoes marks, keeps its rules."""

    def __init__(self, connection: Any, *, as_json: bool, encoding: str, size: int) -> None:
        self.connection = connection
        self.commands: list[str] = []
        self.heard = bytearray()
        self.queue = bytearray()
        self.longest = 0
        self.most_queued = 0
        self.closed = asyncio.Event()
        self._json = as_json
        self._encoding, self._size = encoding, size
        self._marks: list[tuple[int, str]] = []
        self._playing_since = 0
        self._changed = asyncio.Condition()
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._play())]

    async def event(self, name: str, **values: Any) -> None:
        if self._json:
            await self.connection.send(json.dumps({"event": name, **values}))
        else:
            words = " ".join(f"{key}:{value}" for key, value in values.items())
            await self.connection.send(f"{name} {words}".rstrip())

    async def start(self, **more: Any) -> None:
        await self.event(
            "MEDIA_START",
            connection_id="connection-1",
            channel="WebSocket/agent",
            channel_id="pbx-1.7",
            format=self._encoding,
            optimal_frame_size=self._size,
            ptime=20,
            **more,
        )

    async def speak(self, frames: int = 1) -> None:
        for _ in range(frames):
            await self.connection.send(b"\x10" * self._size)

    async def until(self, true: Any) -> None:
        async with asyncio.timeout(20), self._changed:
            await self._changed.wait_for(true)

    async def _read(self) -> None:
        async for message in self.connection:
            if isinstance(message, bytes):
                self.longest = max(self.longest, len(message))
                self.heard += message
                self.queue += message
                self.most_queued = max(self.most_queued, len(self.queue))
            else:
                await self._command(message)
            async with self._changed:
                self._changed.notify_all()
        self.closed.set()
        async with self._changed:
            self._changed.notify_all()

    async def _command(self, message: str) -> None:
        if self._json:
            values = json.loads(message)
            name, argument = values["command"], values.get("correlation_id", "")
        else:
            name, _, argument = message.partition(" ")
        self.commands.append(name)
        if name == "MARK_MEDIA":
            self._marks.append((len(self.queue), argument))
        elif name == "FLUSH_MEDIA":
            self.queue.clear()
            self._marks.clear()
        elif name == "HANGUP":
            await self.connection.close()

    async def _play(self) -> None:
        loop = asyncio.get_running_loop()
        origin, tick = loop.time(), 0
        while True:
            tick += 1
            await asyncio.sleep(max(0.0, origin + tick * 0.02 - loop.time()))
            gone = min(self._size, len(self.queue))
            del self.queue[:gone]
            passed = [name for at, name in self._marks if at - gone <= 0]
            self._marks = [(at - gone, name) for at, name in self._marks if at - gone > 0]
            for name in passed:
                await self.event("MEDIA_MARK_PROCESSED", correlation_id=name)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.connection.close()


@asynccontextmanager
async def media(
    port: int,
    *,
    path: str = "/asterisk",
    as_json: bool = True,
    encoding: str = "slin24",
    size: int = 960,
    **options: Any,
) -> AsyncIterator[MediaSide]:
    scheme = "wss" if options.get("ssl") is not None else "ws"
    connection: ClientConnection = await connect(
        f"{scheme}://127.0.0.1:{port}{path}",
        subprotocols=[Subprotocol("media")],
        proxy=None,
        **options,
    )
    side = MediaSide(connection, as_json=as_json, encoding=encoding, size=size)
    try:
        yield side
    finally:
        await side.close()
