"""Scripted servers on 127.0.0.1 that answer as the peers do, faults included."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from qwen3tts_engine.upstream.engine import UpstreamEngine
from qwen3tts_engine.upstream.settings import UpstreamSettings
from qwen3tts_server.run import running_server
from tests.engine.fake_engine import FakeEngine, tone

VOICES = b'{"voices": ["vivian", "ryan"], "uploaded_voices": [{"name": "mine"}]}'
MODELS = b'{"object": "list", "data": [{"id": "Qwen/Qwen3-TTS", "object": "model"}]}'
QUICK: dict[str, Any] = {"reconnect_s": 0.2, "start_s": 0.3, "connect_timeout_s": 5.0}


@functools.cache
def sound_of(text: str) -> bytes:
    """What the peers say of a text: 50 ms for each code point."""
    return b"".join(map(tone, text))


def pieces(data: bytes, length: int = 4801) -> list[bytes]:
    """The same bytes in pieces that cut samples in half."""
    return [data[first : first + length] for first in range(0, len(data), length)]


class Talk:
    """One utterance on a peer's WebSocket."""

    def __init__(self, socket: ServerConnection, config: dict[str, Any], text: str) -> None:
        self.socket = socket
        self.config = config
        self.text = text

    async def tell(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def start(self, unit: int = 0, **fields: Any) -> None:
        await self.tell(
            "audio.start",
            utterance_index=0,
            sentence_index=unit,
            sentence_text=self.text,
            **{"format": "pcm", "sample_rate": 24_000, **fields},
        )

    async def sound(self, data: bytes | None = None) -> None:
        for piece in pieces(sound_of(self.text) if data is None else data):
            await self.socket.send(piece)

    async def done(self, unit: int = 0, *, error: bool = False) -> None:
        await self.tell(
            "audio.done", utterance_index=0, sentence_index=unit, total_bytes=0, error=error
        )

    async def over(self, units: int = 1) -> None:
        await self.tell("session.done", utterance_index=0, total_sentences=units)

    async def say(self) -> None:
        await self.start()
        await self.sound()
        await self.done()
        await self.over()

    async def vanish(self) -> None:
        """End without a close frame: the client sees 1006."""
        self.socket.transport.close()
        await self.socket.wait_closed()

    async def gone(self) -> None:
        """Wait until the client has left."""
        await self.socket.wait_closed()


Script = Callable[[Talk], Awaitable[None]]


async def well(talk: Talk) -> None:
    """As documented."""
    await talk.say()


class OmniPeer:
    """vLLM-Omni's WebSocket: nothing is read while a script speaks. ``scripts`` are used up, one
    for each utterance; then everything goes well."""

    def __init__(
        self, *scripts: Script, voices: bytes = VOICES, tls: ssl.SSLContext | None = None
    ) -> None:
        self.tls = tls
        self.scripts = deque(scripts)
        self.voices = voices
        self.voices_status = 200
        self.models = MODELS
        self.refusals: deque[tuple[int, bytes, str]] = deque()
        """HTTP answers to the next connections."""
        self.configs: list[dict[str, Any]] = []
        self.texts: list[str] = []
        self.headers: list[Headers] = []
        """Of each connection that was asked for."""
        self.open = 0
        self.speaking = 0
        self.closed_politely = 0
        self._server: Server | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"{'wss' if self.tls else 'ws'}://127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        return self._port

    async def start(self) -> None:
        self._server = await serve(
            self._serve,
            "127.0.0.1",
            self._port,
            process_request=self._request,
            close_timeout=0.2,
            ssl=self.tls,
        )
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """All connections are lost."""
        if self._server is not None:
            for each in list(self._server.connections):
                each.transport.abort()
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    def _request(self, _: ServerConnection, request: Request) -> Response | None:
        if request.path == "/v1/audio/voices":
            return _response(self.voices_status, self.voices)
        if request.path == "/v1/models":
            return _response(200, self.models)
        self.headers.append(request.headers)
        if self.refusals:
            return _response(*self.refusals.popleft())
        return None

    async def _serve(self, socket: ServerConnection) -> None:
        self.open += 1
        config: dict[str, Any] = {}
        text = ""
        try:
            async for data in socket:
                message = json.loads(data)
                if message["type"] == "session.config":
                    config = message
                    self.configs.append(message)
                elif message["type"] == "input.text":
                    text += message["text"]
                elif message["type"] == "input.done":
                    self.texts.append(text)
                    script = self.scripts.popleft() if self.scripts else well
                    self.speaking += 1
                    try:
                        await script(Talk(socket, config, text))
                    finally:
                        self.speaking -= 1
                    text = ""
                elif message["type"] == "session.close":
                    self.closed_politely += 1
                    await socket.close(1000)
        except ConnectionClosed:
            pass
        finally:
            self.open -= 1


def _response(status: int, body: bytes, kind: str = "application/json") -> Response:
    headers = Headers(
        {"Content-Type": kind, "Content-Length": str(len(body)), "Connection": "close"}
    )
    return Response(status, HTTPStatus(status).phrase, headers, body)


class Call:
    """One HTTP request at a peer."""

    def __init__(
        self, head: str, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.method, self.path, _ = head.split("\r\n")[0].split(" ", 2)
        self.headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head.split("\r\n")[1:])
        }
        self.fields: dict[str, Any] = json.loads(body) if body else {}
        self._reader = reader
        self._writer = writer

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def begin(self, kind: str, status: int = 200, **headers: str) -> None:
        """A body in chunks follows."""
        lines = [f"HTTP/1.1 {status} X", "Transfer-Encoding: chunked"]
        lines += [f"Content-Type: {kind}"] if kind else []
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.write(("\r\n".join(lines) + "\r\n\r\n").encode())

    async def chunk(self, data: bytes) -> None:
        if data:
            await self.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def end(self) -> None:
        await self.write(b"0\r\n\r\n")

    async def answer(
        self, status: int, body: bytes, kind: str = "application/json", **headers: str
    ) -> None:
        await self.begin(kind, status, **headers)
        await self.chunk(body)
        await self.end()

    async def raw(self, data: bytes | None = None, kind: str = "audio/pcm") -> None:
        await self.begin(kind)
        for piece in pieces(sound_of(self.fields["input"]) if data is None else data):
            await self.chunk(piece)
        await self.end()

    async def vanish(self) -> None:
        self._writer.transport.abort()

    async def hang_up(self) -> None:
        """What was written still goes out."""
        self._writer.close()

    async def gone(self) -> None:
        """Wait until the client has left."""
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(65_536):
                pass


RestScript = Callable[[Call], Awaitable[None]]


async def raw_pcm(call: Call) -> None:
    """As OpenAI and groxaxo stream."""
    await call.raw()


class RestPeer:
    """OpenAI's REST; ``scripts`` are used up, one for each request for speech."""

    def __init__(self, *scripts: RestScript, voices: bytes = VOICES) -> None:
        self.scripts = deque(scripts)
        self.voices = voices
        self.voices_status = 200
        self.calls: list[Call] = []
        self.open = 0
        self.speaking = 0
        self._server: asyncio.Server | None = None
        self._port = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for writer in list(self._writers):
                writer.transport.abort()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self.open += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().strip()
                call = Call(head, b"", reader, writer)
                length = int(call.headers.get("content-length", "0"))
                call = Call(head, await reader.readexactly(length), reader, writer)
                await self._answer(call)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except asyncio.CancelledError:
            # Cancelled by ``stop``; a connection's task that raises is logged by the loop.
            pass
        finally:
            self.open -= 1
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, call: Call) -> None:
        if call.path == "/v1/audio/voices":
            await call.answer(self.voices_status, self.voices)
        elif call.path == "/v1/models":
            await call.answer(200, MODELS)
        else:
            self.calls.append(call)
            script = self.scripts.popleft() if self.scripts else raw_pcm
            self.speaking += 1
            try:
                await script(call)
            finally:
                self.speaking -= 1


class OwnPeer:
    """A server of ours with an engine of tones, spoken with as ``ws`` or ``http``."""

    def __init__(self, scheme: str) -> None:
        self._scheme = scheme
        self._port = 0
        self._stack = contextlib.AsyncExitStack()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._port}"

    async def start(self) -> None:
        running = running_server(FakeEngine(), port=self._port)
        self._port = (await self._stack.enter_async_context(running)).port

    async def stop(self) -> None:
        await self._stack.aclose()


Peer = OmniPeer | RestPeer | OwnPeer


@contextlib.asynccontextmanager
async def upstream(peer: Peer, **settings: Any) -> AsyncIterator[UpstreamEngine]:
    """An engine in front of a peer; both run."""
    await peer.start()
    engine = UpstreamEngine(UpstreamSettings(url=peer.url, **{**QUICK, **settings}))
    try:
        async with asyncio.timeout(30):
            await engine.start()
            yield engine
    finally:
        await engine.close()
        await peer.stop()


class Peered(UpstreamEngine):
    """An engine that brings its server along."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(UpstreamSettings(url="ws://127.0.0.1:1"))
        self._peer = peer

    async def start(self) -> None:
        if self._server is None:
            await self._peer.start()
            self.settings = UpstreamSettings(url=self._peer.url)
            await super().start()

    async def close(self) -> None:
        await super().close()
        await self._peer.stop()
