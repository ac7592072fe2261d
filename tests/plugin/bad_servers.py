"""Speech servers on 127.0.0.1 that misbehave as a test says, at an address that stays."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

import websockets
from websockets.asyncio.server import ServerConnection, serve

from qwen3tts_pacer.slot import Frame
from qwen3tts_wire.fields import encode
from qwen3tts_wire.formats import FORMATS, AudioFrame
from qwen3tts_wire.messages import (
    PROTOCOL,
    AlignmentInfo,
    ContextDone,
    ContextStarted,
    WordInfo,
)
from tests.speech.fakes import FakeSink
from tests.wire.pair import GREETING

WORD = 2400
"""Samples of each word: 100 ms."""
SOUND = b"\0\x10"

Manner = Callable[["Talk"], Coroutine[Any, Any, None]]


class Talk:
    """One context at a server."""

    def __init__(self, connection: ServerConnection, opened: dict[str, Any]) -> None:
        self.connection = connection
        self.id, self.no = opened["context_id"], opened["context_no"]
        self.text = ""
        self.ended = asyncio.Event()
        self.offset = 0

    async def send(self, message: Any) -> None:
        await self.connection.send(
            message if isinstance(message, (str, bytes)) else encode(message)
        )

    async def start(self) -> None:
        await self.send(ContextStarted(self.id, self.no, "clause", FORMATS[0], "v"))

    async def sound(self, samples: int = WORD) -> None:
        await self.send(AudioFrame(self.no, self.offset, SOUND * samples, 1).to_bytes())
        self.offset += samples

    async def word(self, at: int) -> None:
        """Say the word at that place of the text."""
        words = self.text.split()
        start = sum(len(each) + 1 for each in words[:at])
        info = WordInfo(words[at], self.offset, self.offset + WORD, start, start + len(words[at]))
        await self.send(AlignmentInfo(self.id, (info,)))
        await self.sound()

    async def finish(self) -> None:
        await self.send(ContextDone(self.id, self.offset, len(self.text), 1))

    def vanish(self) -> None:
        """As when the process is killed: no close frame."""
        self.connection.transport.abort()


async def speaks(talk: Talk) -> None:
    """As it should: all words, when the text is there."""
    await talk.start()
    await talk.ended.wait()
    for at in range(len(talk.text.split())):
        await talk.word(at)
    await talk.finish()


class Server:
    """Greets, answers pings, and has each context spoken in its manner."""

    def __init__(self, manner: Manner = speaks) -> None:
        self.manner = manner
        self.manners: list[Manner] = []
        """For the next contexts, one each; then ``manner`` again."""
        self.got: list[dict[str, Any]] = []
        """All that it was told, without pings."""
        self.came = asyncio.Event()
        """Set with each context."""
        self.greeting: str | bytes | None = encode(GREETING)
        """What it says first; None: nothing."""
        self.port = 0
        self.connections: set[ServerConnection] = set()
        self.open = 0
        """Connections there are now."""

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/speech"

    def texts(self) -> list[str]:
        """What it was given to say, in each message."""
        return [each["text"] for each in self.got if each["type"] == "text.append"]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """There at an address, which is the same one each time."""
        names = [websockets.Subprotocol(PROTOCOL)]
        async with serve(
            self._serve, "127.0.0.1", self.port, subprotocols=names, close_timeout=1
        ) as server:
            self.port = server.sockets[0].getsockname()[1]
            yield

    def die(self) -> None:
        """All connections break, without a word."""
        for connection in self.connections:
            connection.transport.abort()

    async def _serve(self, connection: ServerConnection) -> None:
        self.connections.add(connection)
        talks: dict[str, Talk] = {}
        tasks: set[asyncio.Task[None]] = set()
        try:
            if self.greeting is not None:
                await connection.send(self.greeting)
            async for data in connection:
                fields = json.loads(data)
                kind, name = fields["type"], fields.get("context_id")
                if kind == "ping":
                    now = fields["client_time_ms"]
                    pong = {**fields, "type": "pong", "received_ms": now, "sent_ms": now}
                    await connection.send(json.dumps(pong))
                    continue
                self.got.append(fields)
                if kind == "context.open":
                    talk = talks[name] = Talk(connection, fields)
                    manner = self.manners.pop(0) if self.manners else self.manner
                    tasks.add(asyncio.create_task(self._talk(manner, talk)))
                    self.came.set()
                elif kind == "text.append":
                    talks[name].text += fields["text"]
                elif kind == "text.end":
                    talks[name].ended.set()
        except websockets.ConnectionClosed:
            pass
        finally:
            self.connections.discard(connection)
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    @staticmethod
    async def _talk(manner: Manner, talk: Talk) -> None:
        with contextlib.suppress(websockets.ConnectionClosed):
            await manner(talk)


class Deaf:
    """Takes connections and never says a word; not even the handshake is answered."""

    def __init__(self) -> None:
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []

    @contextlib.asynccontextmanager
    async def running(self, port: int = 0) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield f"ws://127.0.0.1:{self.port}/v1/speech"
        finally:
            server.close()
            for writer in self._writers:
                writer.transport.abort()
            await server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)


class QuickSink(FakeSink):
    """All that it is given has been heard at once."""

    def write(self, frames: Sequence[Frame]) -> int:
        count = super().write(frames)
        for frame in frames[:count]:
            self.played[frame.context] = frame.end
        self._gone = len(self.frames)
        return count

    @property
    def heard(self) -> int:
        """Samples that were played, of all contexts."""
        return sum(self.played.values())
