"""WebSocket frames as no client should send them."""

from __future__ import annotations

import asyncio
import gc
import random
from typing import Any

import pytest

from tests.engine.fake_engine import FakeEngine
from tests.server.hostile.world import (
    BINARY,
    CLOSE,
    CONT,
    NATIVE,
    PING,
    PONG,
    PROTOCOLS,
    RUNVNC,
    TEXT,
    VLLM,
    attacked,
    frame,
    text,
    upgrade,
)

pytestmark = pytest.mark.network

PING_JSON = {
    NATIVE: '{"type":"ping","client_time_ms":1}',
    VLLM: '{"type":"session.config","stream_audio":true,"response_format":"pcm"}',
    RUNVNC: '{"type":"ping"}',
}

WRONG = {
    "not masked": (frame(TEXT, b"{}", mask=False), 1002),
    "reserved bits": (frame(TEXT, b"{}", bits=4), 1002),
    "reserved opcode": (frame(3, b"{}"), 1002),
    "reserved control": (frame(11, b""), 1002),
    "long ping": (frame(PING, b"x" * 126), 1002),
    "ping in pieces": (frame(PING, b"x", fin=False), 1002),
    "continues nothing": (frame(CONT, b"{}"), 1002),
    "begins twice": (frame(TEXT, b"{", fin=False) + frame(TEXT, b"}"), 1002),
    "close of one byte": (frame(CLOSE, b"x"), 1002),
    "close code 1005": (frame(CLOSE, (1005).to_bytes(2)), 1002),
    "close code 999": (frame(CLOSE, (999).to_bytes(2)), 1002),
    "close reason not UTF-8": (frame(CLOSE, (1000).to_bytes(2) + b"\xff"), 1007),
    "not UTF-8": (frame(TEXT, b'{"type":"\xc3\x28"}'), 1007),
    "half a character": (frame(TEXT, "é".encode()[:1]), 1007),
    "a surrogate in UTF-8": (frame(TEXT, b'"\xed\xa0\x80"'), 1007),
    "announces an exabyte": (bytes([0x81, 0xFF]) + (1 << 60).to_bytes(8) + bytes(4), 1009),
    "announces a sign bit": (bytes([0x82, 0xFF]) + b"\xff" * 8 + bytes(4), 1009),
}


@pytest.mark.parametrize("path", PROTOCOLS)
async def test_a_wrong_frame_closes_its_own_connection_with_a_code(path: str) -> None:
    async with attacked() as world:
        for name, (wrong, code) in WRONG.items():
            one = await world.websocket(path)
            await one.send(wrong)
            assert await one.close_code() in (code, 1002), name


@pytest.mark.parametrize("path", PROTOCOLS)
async def test_a_message_in_pieces_is_one_message(path: str) -> None:
    message = PING_JSON[path].encode()
    pieces = [frame(TEXT, b"", fin=False)]
    for byte in message:
        pieces += [
            frame(CONT, bytes([byte]), fin=False),
            frame(PING, b"between"),
            frame(CONT, fin=False),
        ]
    async with attacked() as world:
        one = await world.websocket(path)
        await one.send(b"".join([*pieces, frame(CONT, b"")]))
        if path == VLLM:
            await one.send(text({"type": "input.done"}))
            assert (await one.json())["type"] == "session.done"
        else:
            assert (await one.json())["type"] == "pong"


@pytest.mark.parametrize("path", PROTOCOLS)
async def test_an_endless_message_ends_with_1009(path: str) -> None:
    async with attacked() as world:
        one = await world.websocket(path)
        await one.send(frame(TEXT, b"{", fin=False))
        code = asyncio.create_task(one.close_code())
        piece = frame(CONT, b" " * 65_000, fin=False) * 8
        while not code.done():
            await one.send(piece)
        assert await code == 1009


@pytest.mark.parametrize("path", PROTOCOLS)
async def test_a_message_of_a_hundred_thousand_pieces_holds_nobody_up(path: str) -> None:
    async with attacked() as world:
        one = await world.websocket(path)
        await one.send(frame(TEXT, b'"', fin=False))
        heard = world.heard
        for _ in range(10):
            await one.send((frame(CONT, b"x", fin=False) + frame(CONT, fin=False)) * 5000)
        await one.send(frame(CONT, b'"'))
        if path == VLLM:
            assert (await one.json())["type"] == "error"
            assert await one.close_code() == 1008
        else:
            assert (await one.json())["code"] == "bad_request"
        assert world.heard > heard


FLOODS = {
    "pings": frame(PING, b"x" * 125),
    "empty pings": frame(PING),
    "pongs": frame(PONG, b"x" * 125),
    "empty texts": frame(TEXT),
    "objects": frame(TEXT, b"{}"),
    "empty binaries": frame(BINARY),
    "empty pieces": frame(CONT, fin=False),
    "one-byte pieces": frame(CONT, b"x", fin=False),
}


@pytest.mark.parametrize("path", PROTOCOLS)
async def test_floods_of_small_frames_from_those_who_read_nothing(path: str) -> None:
    async with attacked() as world:
        for name, small in FLOODS.items():
            one = await world.websocket(path)
            one.writer.transport.pause_reading()  # type: ignore[attr-defined]
            if "pieces" in name:
                await one.send(frame(TEXT, b"{", fin=False))
            sending = asyncio.create_task(one.send(small * 20_000))
            await world.heard_more()
            one.reset()
            await sending


async def test_pongs_that_nobody_reads_are_not_kept() -> None:
    async with attacked() as world:
        others = {id(each) for each in _sockets()}
        one = await world.websocket(NATIVE, room=4096)
        one.writer.transport.pause_reading()  # type: ignore[attr-defined]
        sockets = [each for each in _sockets() if id(each) not in others]
        for _ in range(20):
            await one.send(frame(PING, random.randbytes(125)) * 4000)
        assert max(each.transport.get_write_buffer_size() for each in sockets) < 1 << 18
        one.writer.transport.resume_reading()  # type: ignore[attr-defined]
        await one.send(frame(PING, b"the last"))
        while (await one.message()) != (PONG, b"the last"):
            pass


def _sockets() -> list[Any]:
    return [each for each in gc.get_objects() if type(each).__name__ == "BoundedWebSocket"]


@pytest.mark.parametrize("path", PROTOCOLS)
async def test_what_comes_after_a_close_is_not_answered(path: str) -> None:
    async with attacked() as world:
        one = await world.websocket(path)
        await one.send(frame(CLOSE, (1000).to_bytes(2)) + text(PING_JSON[path]) * 3)
        assert await one.message() == (CLOSE, (1000).to_bytes(2))
        assert await one.rest() == b""


@pytest.mark.parametrize(
    "offer",
    [
        "permessage-deflate",
        "permessage-deflate; server_max_window_bits=8; client_max_window_bits",
        "x-webkit-deflate-frame, permessage-deflate; foo=bar",
    ],
)
@pytest.mark.parametrize("path", PROTOCOLS)
async def test_compression_is_not_agreed_on_and_compressed_frames_are_refused(
    path: str, offer: str
) -> None:
    async with attacked() as world:
        one = await world.attacker(upgrade(path, PROTOCOLS[path], Sec_WebSocket_Extensions=offer))
        head = await one.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ")
        assert b"extensions" not in head.lower()
        await one.send(frame(TEXT, b"\xaa\x56\x2a\x2e\x4d\x2a\x06\x00", bits=4))
        assert await one.close_code() == 1002


@pytest.mark.parametrize("path", PROTOCOLS)
async def test_vanishing_in_mid_speech_frees_the_engine(path: str) -> None:
    engine = FakeEngine()
    async with attacked(engine) as world:
        speech = {
            NATIVE: (
                {"type": "context.open", "context_id": "a", "context_no": 1, "voice": "stall"},
                {"type": "text.append", "context_id": "a", "text": "Hello there."},
                {"type": "text.end", "context_id": "a"},
            ),
            VLLM: (
                {"type": "session.config", "voice": "stall"},
                {"type": "input.text", "text": "Hello there."},
                {"type": "input.done"},
            ),
            RUNVNC: ({"type": "generate_stream", "text": "Hello there.", "voice_id": "stall"},),
        }[path]
        for how in ("reset", "half", "close", "garbage"):
            one = await world.websocket(path, *speech)
            await world.until(lambda: any(each.voice == "stall" for each in engine.requests))
            if how == "reset":
                one.reset()
            elif how == "half":
                one.writer.write_eof()
            elif how == "close":
                await one.send(frame(CLOSE, (1001).to_bytes(2)))
            else:
                await one.send(b"\xff" * 100)
            # The honest caller's speech may be under way, and no other's.
            await world.until(lambda: engine.active == 0 and world.server.service.connections == 1)
            engine.requests.clear()


async def test_a_long_head_and_what_follows_it_in_pieces_of_any_length() -> None:
    heads: dict[str, Any] = {f"X_{each}": "y" * 3000 for each in range(4)}
    ping = text(PING_JSON[NATIVE])
    async with attacked() as world:
        whole = await world.websocket(NATIVE, **heads)
        await whole.send(ping * 2000)
        for _ in range(2000):
            assert (await whole.json())["type"] == "pong"
        pieces = await world.attacker()
        for byte in upgrade(NATIVE, PROTOCOLS[NATIVE], **heads):
            pieces.writer.write(bytes([byte]))
        assert b" 101 " in await pieces.reader.readuntil(b"\r\n\r\n")
        for byte in ping:
            await pieces.send(bytes([byte]))
        await pieces.until("pong")
