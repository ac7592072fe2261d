"""A server under attack: what attackers send byte by byte, the honest caller beside them, and what
has to be as before when they are gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from qwen3tts_server.run import RunningServer, running_server
from qwen3tts_server.settings import AccessSettings, ServerSettings
from qwen3tts_wire.client import Audio, SpeechClient
from qwen3tts_wire.messages import PROTOCOL
from tests.engine import fake_engine
from tests.engine.fake_engine import FakeEngine, tone

NATIVE, VLLM, RUNVNC = "/v1/speech", "/v1/audio/speech/stream", "/"
SPEECH, VOICES = "/v1/audio/speech", "/v1/audio/voices"
PROTOCOLS: dict[str, str | None] = {NATIVE: PROTOCOL, VLLM: None, RUNVNC: None}
"""The WebSocket paths and the subprotocol that each wants."""
LIMIT_S = 20.0
"""No test takes longer."""
CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
HONEST = "All of this is heard."
TONE = functools.cache(tone)


def frame(
    opcode: int, data: bytes = b"", *, fin: bool = True, mask: bool = True, bits: int = 0
) -> bytes:
    """One WebSocket frame, right or wrong; ``bits``: reserved ones of the first byte."""
    head = bytes([fin << 7 | bits << 4 | opcode])
    masked = 128 if mask else 0
    if len(data) < 126:
        head += bytes([masked | len(data)])
    elif len(data) < 1 << 16:
        head += struct.pack(">BH", masked | 126, len(data))
    else:
        head += struct.pack(">BQ", masked | 127, len(data))
    return head + (bytes(4) if mask else b"") + data  # a mask of zeros changes nothing


def text(message: object) -> bytes:
    """A message as a frame."""
    return frame(
        TEXT, message.encode() if isinstance(message, str) else json.dumps(message).encode()
    )


def request(method: str, path: str, body: bytes = b"", /, **headers: str) -> bytes:
    """An HTTP request whose connection ends with it."""
    fields = {"Host": "tts", "Connection": "close"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    if body:
        fields.setdefault("Content-Length", str(len(body)))
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def upgrade(path: str, subprotocol: str | None = None, **headers: str) -> bytes:
    """The head with which a WebSocket begins."""
    fields = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec_WebSocket_Version": "13",
        "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    if subprotocol is not None:
        fields["Sec_WebSocket_Protocol"] = subprotocol
    return request("GET", path, **fields | headers)


@dataclass
class Answer:
    """An HTTP answer as it came over the wire."""

    status: int
    headers: dict[str, list[str]]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The error in it, in OpenAI's shape."""
        assert self.headers["content-type"] == ["application/json"]
        assert len(self.body) == int(self.headers["content-length"][0])
        found = json.loads(self.body)
        assert set(found) == {"error"}
        error: dict[str, Any] = found["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
        assert error["message"].isprintable()
        return error


def answers(data: bytes) -> list[Answer]:
    """All whole answers of one connection; those without a length end it."""
    found = []
    while data.startswith(b"HTTP/1.1 "):
        head, _, rest = data.partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        headers: dict[str, list[str]] = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers.setdefault(name.lower(), []).append(value.strip())
        assert all(len(values) == 1 for values in headers.values())
        if status.startswith("HTTP/1.1 1"):
            data = rest
            continue
        if headers.get("transfer-encoding") == ["chunked"]:
            body, data = _dechunked(rest)
        else:
            length = int(headers.get("content-length", [str(len(rest))])[0])
            body, data = rest[:length], rest[length:]
        found.append(Answer(int(status.split(" ")[1]), headers, body))
    assert not data
    return found


def _dechunked(data: bytes) -> tuple[bytes, bytes]:
    """A body in chunks, as far as it came, and what follows it."""
    body = b""
    while True:
        size, _, data = data.partition(b"\r\n")
        length = int(size or b"0", 16)
        body, data = body + data[:length], data[length + 2 :]
        if length == 0:
            return body, data


@dataclass
class Attacker:
    """One TCP connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        """As far as the server takes it."""
        with contextlib.suppress(ConnectionError):
            self.writer.write(data)
            await self.writer.drain()

    async def rest(self) -> bytes:
        """All that comes until the server ends it; empty after a reset."""
        data = b""
        with contextlib.suppress(ConnectionError):
            while piece := await self.reader.read(1 << 16):
                data += piece
        return data

    async def ended(self) -> list[Answer]:
        """All answers until the server ends it."""
        return answers(await self.rest())

    async def message(self) -> tuple[int, bytes]:
        """One frame from the server: opcode and content."""
        first, second = await self.reader.readexactly(2)
        assert first & 0xF0 == 0x80
        size = second
        if second == 126:
            (size,) = struct.unpack(">H", await self.reader.readexactly(2))
        elif second == 127:
            (size,) = struct.unpack(">Q", await self.reader.readexactly(8))
        return first & 0x0F, await self.reader.readexactly(size)

    async def json(self) -> dict[str, Any]:
        """The next text message; sound and pongs are passed over."""
        while True:
            opcode, data = await self.message()
            if opcode == TEXT:
                found: dict[str, Any] = json.loads(data)
                return found
            assert opcode in (BINARY, PING, PONG), (opcode, data)

    async def until(self, *kinds: str) -> dict[str, Any]:
        """The next text message of one of these types."""
        while (found := await self.json())["type"] not in kinds:
            pass
        return found

    async def close_code(self) -> int:
        """The code of the close frame that has to come."""
        while True:
            opcode, data = await self.message()
            if opcode == CLOSE:
                assert len(data) >= 2
                return int.from_bytes(data[:2])

    def reset(self) -> None:
        """Gone without a word (RST where something lies unread)."""
        self.writer.transport.abort()


@dataclass
class World:
    """A server, its engine, and how many have attacked it."""

    server: RunningServer
    engine: FakeEngine
    heard: int = 0
    """Times that the honest caller got all its sound."""
    attackers: list[Attacker] = field(default_factory=list)
    caller: asyncio.Task[None] | None = None
    """The honest one; an error of its own ends the test."""

    async def attacker(self, data: bytes = b"", *, room: int | None = None) -> Attacker:
        """Somebody who connects and sends this; ``room``: bytes that the system keeps for it."""
        line = socket.socket()
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line.setblocking(False)
        if room is not None:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        await asyncio.get_running_loop().sock_connect(line, ("127.0.0.1", self.server.port))
        reader, writer = await asyncio.open_connection(sock=line)
        one = Attacker(reader, writer)
        self.attackers.append(one)
        await one.send(data)
        return one

    async def http(self, data: bytes) -> list[Answer]:
        """What is answered to these bytes until the connection ends."""
        return await (await self.attacker(data)).ended()

    async def websocket(
        self, path: str, *messages: object, room: int | None = None, **headers: str
    ) -> Attacker:
        """One that is accepted, its greeting read, and has sent these."""
        one = await self.attacker(upgrade(path, PROTOCOLS[path], **headers), room=room)
        head = await one.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head
        if path == NATIVE:
            assert (await one.json())["type"] == "session.created"
        elif path == RUNVNC:
            assert (await one.json())["type"] == "connected"
        for each in messages:
            await one.send(text(each))
        return one

    async def heard_more(self, times: int = 2) -> None:
        """Wait until the honest caller has heard more."""
        goal = self.heard + times
        await self.until(lambda: self.heard >= goal)

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for what others do; the test's own time bounds it."""
        while not true():
            if self.caller is not None and self.caller.done():
                await self.caller
            await asyncio.sleep(0.001)


async def spoken(client: SpeechClient, said: str = HONEST) -> None:
    """The whole of a sentence, to the last sample."""
    context = await client.open(voice="tone")
    await context.append(said)
    await context.end()
    sound = b"".join([each.pcm async for each in context if isinstance(each, Audio)])
    assert sound == b"".join(map(TONE, said))


async def _honest(world: World) -> None:
    """Speaks all the time, beside whatever happens, on one connection."""
    async with await SpeechClient.connect(world.server.url, api_key=KEY, open_timeout=20) as client:
        while True:
            await spoken(client)
            world.heard += 1
            await asyncio.sleep(0.005)


KEY = "the-honest-key"


def descriptors() -> int:
    """Files and sockets that this process has open."""
    return len(os.listdir("/proc/self/fd"))


@contextlib.asynccontextmanager
async def attacked(
    engine: FakeEngine | None = None,
    *,
    access: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[World]:
    """A server with an honest caller on it. Afterwards that one has got all its sound, also after
    the last attack, and of the attackers nothing is left: no task, no socket, no speech."""
    engine = engine or FakeEngine()
    chosen = ServerSettings(access=AccessSettings(**(access or {})), **settings)
    # The engine is to be quick: it is the server that is tried.
    with mock.patch.object(fake_engine, "tone", TONE):
        async with _attacked(engine, chosen) as world:
            yield world


@contextlib.asynccontextmanager
async def _attacked(engine: FakeEngine, chosen: ServerSettings) -> AsyncIterator[World]:
    async with asyncio.timeout(LIMIT_S):
        tasks, files = len(asyncio.all_tasks()), descriptors()
        async with running_server(engine, settings=chosen) as server:
            world = World(server, engine)
            caller = world.caller = asyncio.create_task(_honest(world))
            try:
                await world.heard_more(1)
                running = len(asyncio.all_tasks()), descriptors()
                yield world
                for each in world.attackers:
                    each.reset()
                await world.until(lambda: server.service.connections <= 1)
                await world.heard_more()
                await world.until(lambda: (len(asyncio.all_tasks()), descriptors()) <= running)
            finally:
                for each in world.attackers:
                    each.reset()
                caller.cancel()
                await asyncio.gather(caller, return_exceptions=True)
                world.caller = None
            await world.until(lambda: engine.active == 0 and server.service.connections == 0)
            assert not server.service._speaking
        assert len(asyncio.all_tasks()) <= tasks
        assert descriptors() <= files


ABSENT = object()

VALUES: dict[str, str] = {
    "null": "null",
    "true": "true",
    "false": "false",
    "zero": "0",
    "minus one": "-1",
    "minus nought": "-0.0",
    "half": "0.5",
    "huge": "1e308",
    "beyond floats": "1e999",
    "minus beyond floats": "-1e999",
    "NaN": "NaN",
    "Infinity": "-Infinity",
    "64 bits": str(1 << 63),
    "a thousand digits": "9" * 1000,
    "a hundred thousand digits": "9" * 100_000,
    "empty": '""',
    "blank": '" "',
    "NUL": '"a\\u0000b"',
    "line break": '"a\\r\\nX-Evil: 1"',
    "half a surrogate": '"\\ud800"',
    "halves in the wrong order": '"\\ude00\\ud83d"',
    "not a character": '"\\uffff"',
    "bidi override": '"\\u202e\\u2066"',
    "path": '"../../../../etc/passwd"',
    "format string": '"%s%n{0.__class__}${jndi:ldap://127.0.0.1/}"',
    "long": json.dumps("x" * 5000),
    "longer": json.dumps("x " * 60_000),
    "list": "[]",
    "list of itself": '["x"]',
    "object": "{}",
    "object of itself": '{"id":{"id":{}}}',
    "prototype": '{"__proto__":{"a":1},"__class__":"x"}',
    "deep": "[" * 500 + "]" * 500,
    "deeper": "[" * 50_000 + "]" * 50_000,
    "wide": "[" + "0," * 10_000 + "0]",
}
"""JSON, by a name for it."""


def messages(
    kind: str, fields: dict[str, object], names: list[str], *, names_too: bool = True
) -> Iterator[tuple[str, str]]:
    """What it is, and its JSON: a good message with one field missing, of another value, or there
    twice; and, ``names_too``, with one that is unknown."""
    good = {"type": kind, **fields}
    yield "good", json.dumps(good)
    for name in ["type", *names]:
        rest = {each: value for each, value in good.items() if each != name}
        yield f"{kind}: no {name}", json.dumps(rest)
        for what, value in VALUES.items():
            yield f"{kind}: {name} is {what}", _with(rest, name, value)
        twice = json.dumps(good.get(name, "x"))
        yield f"{kind}: {name} twice", _with({**good, name: good.get(name, "y")}, name, twice)
    if not names_too:
        return
    yield f"{kind}: unknown field", json.dumps({**good, "no_such_field": 1})
    yield f"{kind}: NUL in a name", json.dumps({**good, "a\0b": 1})
    yield f"{kind}: half a surrogate in a name", json.dumps({**good, "\ud800": 1})
    yield f"{kind}: long name", json.dumps({**good, "x" * 50_000: 1})


def _with(fields: dict[str, object], name: str, value: str) -> str:
    parts = [f"{json.dumps(each)}:{json.dumps(of)}" for each, of in fields.items()]
    return "{" + ",".join([*parts, f"{json.dumps(name)}:{value}"]) + "}"
