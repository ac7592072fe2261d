"""A client of vLLM-Omni's WebSocket that holds the server to its order."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from qwen3tts_engine.base import Engine
from qwen3tts_server.run import RunningServer, running_server
from qwen3tts_server.settings import ServerSettings, VllmOmniSettings
from qwen3tts_wire.addresses import DIRECT
from tests.engine.fake_engine import FakeEngine
from tests.fakes import settle
from tests.server.vllm_omni.line import JSON, Order

PATH = "/v1/audio/speech/stream"


class Peer:
    """One connection."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.order = Order()
        self.sound = b""
        """Audio of the last ``until``."""
        self.frames: list[bytes] = []

    async def say(self, *messages: JSON | str | bytes) -> None:
        for message in messages:
            await self.socket.send(json.dumps(message) if isinstance(message, dict) else message)

    async def hear(self) -> JSON | bytes:
        data = await self.socket.recv()
        self.order.read(data)
        return data if isinstance(data, bytes) else json.loads(data)

    async def until(self, kind: str) -> list[JSON]:
        """All messages up to the first of this type; binary ones are kept apart."""
        heard: list[JSON] = []
        self.frames = []
        while not heard or heard[-1]["type"] != kind:
            message = await self.hear()
            if isinstance(message, bytes):
                self.frames.append(message)
            else:
                heard.append(message)
        self.sound = b"".join(self.frames)
        return heard

    async def rest(self) -> tuple[list[JSON], int | None]:
        """All messages up to the close, and its code."""
        heard = []
        try:
            while True:
                message = await self.hear()
                if isinstance(message, dict):
                    heard.append(message)
        except ConnectionClosed:
            return heard, self.socket.close_code

    def hear_nothing(self) -> None:
        self.socket.transport.pause_reading()

    def hear_again(self) -> None:
        self.socket.transport.resume_reading()

    def vanish(self) -> None:
        """As when a cable is pulled, but told."""
        self.socket.transport.abort()


@contextlib.asynccontextmanager
async def peer(server: RunningServer, *messages: JSON, **options: Any) -> AsyncIterator[Peer]:
    url = f"ws://127.0.0.1:{server.port}{PATH}"
    async with connect(url, max_size=None, **DIRECT, **options) as socket:
        one = Peer(socket)
        await one.say(*messages)
        yield one


@contextlib.asynccontextmanager
async def serving(
    engine: Engine | None = None, *, server: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[RunningServer]:
    """A server of this protocol's settings, for at most 30 s."""
    options = ServerSettings(vllm_omni=VllmOmniSettings(**settings), **server or {})
    async with (
        asyncio.timeout(30),
        running_server(engine or FakeEngine(), settings=options) as running,
    ):
        yield running


async def idle(engine: FakeEngine) -> None:
    """Wait until the engine speaks nothing."""
    while engine.active:
        await settle()


async def speaking(engine: FakeEngine) -> None:
    """Wait until the engine speaks."""
    while not engine.active:
        await settle()


async def empty(server: RunningServer) -> None:
    """Wait until no client is connected."""
    while server.service.connections:
        await settle()
