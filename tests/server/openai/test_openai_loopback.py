"""The routes over real sockets: what only these show."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable

import pytest

from qwen3tts_engine.base import PcmChunk, SynthesisRequest
from qwen3tts_server.run import RunningServer, running_server
from qwen3tts_server.settings import OpenAISettings, ServerSettings
from tests.engine.fake_engine import FakeEngine, tone

pytestmark = pytest.mark.network

PCM = b"".join(map(tone, "Hello there."))
LONG_CHUNKS = 4000
"""19 MB: more than the buffers between two sockets hold."""


class LongWinded(FakeEngine):
    """Its voice ``tone-de`` says every text with minutes of silence."""

    async def _chunks(self, request: SynthesisRequest) -> AsyncGenerator[PcmChunk, None]:
        if request.voice == "tone-de":
            for _ in range(LONG_CHUNKS):
                yield PcmChunk(bytes(4800))
        else:
            async for chunk in super()._chunks(request):
                yield chunk


async def until_real(condition: Callable[[], bool]) -> None:
    """Let the sockets work until it is so."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - it changes on the other end of a socket
            await asyncio.sleep(0.001)


class Wire:
    """A connection on which bytes are written and read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def write(self, *lines: str, body: bytes = b"") -> None:
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await self.writer.drain()

    async def speak(self, version: str = "1.1", **fields: object) -> None:
        body = json.dumps({"input": "Hello there.", "response_format": "pcm", **fields}).encode()
        await self.write(
            f"POST /v1/audio/speech HTTP/{version}",
            "Host: test",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            body=body,
        )

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of the next answer."""
        text = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = text.strip().split("\r\n")
        fields = (line.partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in fields}
        return int(first.split()[1]), headers

    async def chunked(self) -> bytes:
        """A body in chunks; IncompleteReadError where it is cut off."""
        body = bytearray()
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            body += await self.reader.readexactly(size)
            assert await self.reader.readexactly(2) == b"\r\n"
        assert await self.reader.readexactly(2) == b"\r\n"
        return bytes(body)


@contextlib.asynccontextmanager
async def wire(server: RunningServer) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        async with asyncio.timeout(20):
            yield Wire(reader, writer)
    finally:
        writer.close()


async def test_one_connection_serves_many_requests_also_after_an_error() -> None:
    async with running_server(FakeEngine()) as server, wire(server) as client:
        for fields, status in ({}, 200), ({"voice": "unlisted"}, 400), ({}, 200):
            await client.speak(**fields)
            found, headers = await client.head()
            assert found == status
            if status == 200:
                assert headers["transfer-encoding"] == "chunked"
                assert await client.chunked() == PCM
            else:
                await client.reader.readexactly(int(headers["content-length"]))


async def test_a_client_that_leaves_in_the_middle_frees_its_slot() -> None:
    engine = FakeEngine(capacity=1)
    async with running_server(engine) as server:
        for fields in ({"stream": True}, {"stream": False}, {"stream_format": "sse"}):
            async with wire(server) as client:
                await client.speak(voice="stall", **fields)
                await until_real(lambda: engine.active > 0)
                client.writer.transport.abort()
            await until_real(lambda: engine.active == 0)
        assert engine.cancelled == 3
        async with wire(server) as client:
            await client.speak()
            assert (await client.head())[0] == 200
            assert await client.chunked() == PCM


async def test_a_raw_stream_that_breaks_is_seen_to_be_incomplete() -> None:
    async with running_server(FakeEngine()) as server, wire(server) as client:
        await client.speak(voice="fail-late")
        assert (await client.head())[0] == 200
        with pytest.raises(asyncio.IncompleteReadError):
            await client.chunked()


async def test_a_body_in_chunks_is_read_and_bounded() -> None:
    small = ServerSettings(openai=OpenAISettings(max_body_bytes=1000))
    start = ("POST /v1/audio/speech HTTP/1.1", "Host: test", "Content-Type: application/json")
    chunk = b'{"input": "Hello there.", "response_format": "pcm"}'
    async with running_server(FakeEngine(), settings=small) as server:
        async with wire(server) as client:
            await client.write(*start, "Transfer-Encoding: chunked")
            for at in range(0, len(chunk), 10):
                piece = chunk[at : at + 10]
                client.writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            client.writer.write(b"0\r\n\r\n")
            assert (await client.head())[0] == 200
            assert await client.chunked() == PCM
        async with wire(server) as client:
            await client.write(*start, "Transfer-Encoding: chunked")
            client.writer.write(b"800\r\n" + b" " * 0x800 + b"\r\n")
            assert (await client.head())[0] == 413
        async with wire(server) as client:
            await client.write(*start, "Content-Length: 100000000", "Expect: 100-continue")
            assert (await client.head())[0] == 413


async def test_a_client_of_http_1_0_gets_the_sound_until_the_end_of_the_connection() -> None:
    async with running_server(FakeEngine()) as server, wire(server) as client:
        await client.speak("1.0")
        status, headers = await client.head()
        assert status == 200
        assert "transfer-encoding" not in headers
        assert await client.reader.read() == PCM


async def test_a_slow_reader_stalls_only_itself() -> None:
    engine = LongWinded()
    tight = ServerSettings(ahead_ms=100)
    async with running_server(engine, settings=tight) as server, wire(server) as slow:
        await slow.speak(voice="tone-de")
        await until_real(lambda: engine.active > 0)
        async with wire(server) as quick:
            for _ in range(5):
                await quick.speak()
                await quick.head()
                assert await quick.chunked() == PCM
        assert engine.active == 1
        assert (await slow.head())[0] == 200
        assert len(await slow.chunked()) == 4800 * LONG_CHUNKS
    assert engine.active == 0
