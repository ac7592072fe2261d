"""A Qwen3 engine behind the real server, and a line to it that says whatever it likes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import websockets
from numpy.typing import NDArray
from websockets.asyncio.client import ClientConnection, connect

from qwen3tts_engine.qwen3.engine.engine import Qwen3Engine
from qwen3tts_server.run import RunningServer, running_server
from qwen3tts_wire.addresses import DIRECT
from qwen3tts_wire.client import Audio, Context, SpeechClient
from qwen3tts_wire.messages import PROTOCOL
from tests.engine.waiting import until
from tests.qwen3.engine.engine_world import made


@contextlib.contextmanager
def engines_of(tiny: dict[str, Path]) -> Iterator[dict[str, Qwen3Engine]]:
    """One for each checkpoint; a server starts it, and leaves it started for the next test."""
    made_here = {task: made(folder, slots=4) for task, folder in tiny.items()}
    yield made_here
    for engine in made_here.values():
        asyncio.run(engine.close())


@contextlib.asynccontextmanager
async def serving(engine: Qwen3Engine) -> AsyncIterator[RunningServer]:
    async def stay() -> None:
        """Its next server finds it started."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "close", stay, raising=False)
        async with asyncio.timeout(60), running_server(engine) as server:
            yield server
            await until(lambda: not engine.under_way)


@contextlib.asynccontextmanager
async def talking(engine: Qwen3Engine) -> AsyncIterator[SpeechClient]:
    async with serving(engine) as server, await SpeechClient.connect(server.url) as client:
        yield client


class Raw:
    """Messages as they are."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.events: list[dict[str, Any]] = []
        """All that came; audio as ``type`` ``audio`` with ``no``, ``offset``, ``data``."""

    async def say(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def open(self, number: int, **fields: Any) -> None:
        how = {"lead_ms": 10_000, **fields}
        await self.say("context.open", context_id=f"c{number}", context_no=number, **how)

    async def take(self) -> dict[str, Any]:
        data = await self.socket.recv()
        if isinstance(data, str):
            event = dict(json.loads(data))
        else:
            _, flags, _, no, offset = struct.unpack_from("<BBHIQ", data)
            event = {"type": "audio", "no": no, "offset": offset, "data": data[16:], "flags": flags}
        self.events.append(event)
        return event

    async def until(self, kind: str, **fields: Any) -> dict[str, Any]:
        while True:
            event = await self.take()
            if event["type"] == kind and all(event.get(k) == v for k, v in fields.items()):
                return event

    async def settled(self) -> None:
        """Everything that the server had to say so far has come."""
        await self.say("ping", client_time_ms=len(self.events))
        await self.until("pong", client_time_ms=len(self.events))

    def sound(self, no: int) -> bytes:
        """A context's sound; it must have come whole and in order."""
        frames = [e for e in self.events if e["type"] == "audio" and e["no"] == no]
        at = 0
        for frame in frames:
            assert frame["offset"] == at
            at += len(frame["data"]) // 2
        return b"".join(frame["data"] for frame in frames)


@contextlib.asynccontextmanager
async def raw(engine: Qwen3Engine) -> AsyncIterator[Raw]:
    async with (
        serving(engine) as server,
        connect(
            server.url,
            subprotocols=[websockets.Subprotocol(PROTOCOL)],
            max_size=None,
            **DIRECT,
        ) as socket,
    ):
        raw_one = Raw(socket)
        assert (await raw_one.take())["type"] == "session.created"
        yield raw_one


async def heard(context: Context) -> list[object]:
    return [event async for event in context]


def samples(pcm: bytes) -> NDArray[np.int32]:
    return np.frombuffer(pcm, "<i2").astype(np.int32)


def pcm_of(events: list[object]) -> bytes:
    return b"".join(event.pcm for event in events if isinstance(event, Audio))
