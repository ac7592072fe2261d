"""Bad input, silence, a server that stops: an error with a name, a close code, and no harm done."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest
from websockets.frames import Frame, Opcode

from tests.engine.fake_engine import FakeEngine, tone
from tests.fakes import settle
from tests.server.vllm_omni.line import CANCEL, CLOSE, DONE, JSON, STREAM, config, text
from tests.server.vllm_omni.peer import PATH, empty, idle, peer, serving, speaking

pytestmark = pytest.mark.network

HELLO = b"".join(map(tone, "Hello"))
CODES = ("bad_request", "protocol_error", "limit_exceeded", "model_not_found")
BOMB = '{"type":"session.config","a":' + "[" * 200_000
BAD: list[JSON | str | bytes] = [
    "",
    "no json",
    "[]",
    "{}",
    '{"type":',
    "[" * 100_000,
    '{"a":' * 20_000,
    BOMB,
    '{"type":"input.text","text":' + "9" * 10_000 + "}",
    '{"type":"input.text","text":NaN}',
    b"",
    b"\x00\xff",
    {"type": None},
    {"type": "context.open"},
    {"type": "input.text"},
    {"type": "input.text", "text": None},
    {"type": "input.text", "text": {"text": "Hi"}},
    {"type": "session.config", "speed": "fast"},
    {"type": "session.config", "response_format": "aac"},
    {"type": "session.config", "stream_audio": True},
    {"type": "session.config", "model": "another"},
    {"type": "input.text", "text": "w" * (128 * 1024)},
]


async def test_bad_messages_are_named_and_the_connection_goes_on() -> None:
    async with serving() as server, peer(server, STREAM) as client:
        for bad in BAD:
            await client.say(bad)
            (error,) = await client.until("error")
            assert error["code"] in CODES, bad
        await client.say(text("Hello"), DONE)
        await client.until("session.done")
        assert client.sound == HELLO


async def test_bad_messages_while_something_is_said_are_answered_after_it() -> None:
    engine = FakeEngine()
    async with serving(engine) as server, peer(server, {**STREAM, "voice": "step"}) as client:
        await client.say(text("Hello"), DONE)
        await speaking(engine)
        for bad in BAD:
            await client.say(bad)
        await client.say(config(), text("no config here"), config(), CANCEL, CLOSE)
        heard, code = await client.rest()
        assert code == 1000
        kinds = [each["type"] for each in heard]
        assert kinds.count("error") == len(BAD) + 1  # the configuration within an utterance
        assert kinds[-1] == "input.cancelled"


@pytest.mark.parametrize("bad", [BAD[1], BAD[5], b"\x00", DONE, text("Hi"), config(seed=0.5)])
async def test_a_bad_start_is_named_and_closed(bad: JSON | str | bytes) -> None:
    async with serving() as server, peer(server) as client:
        await client.say(bad)
        (error,), code = await client.rest()
        assert error["code"] in ("bad_request", "protocol_error")
        assert code == (1003 if isinstance(bad, bytes) else 1008)
        await empty(server)


async def test_invalid_utf8_is_closed_with_1007() -> None:
    async with serving() as server, peer(server, STREAM) as client:
        frame = Frame(Opcode.TEXT, b'{"type":"input.text","text":"\xff\xfe"}')
        client.socket.transport.write(frame.serialize(mask=True))
        assert (await client.rest())[1] == 1007
        await empty(server)


@pytest.mark.parametrize("binary", [True, False])
async def test_a_message_beyond_every_bound_is_closed_with_1009(binary: bool) -> None:
    bounds: dict[str, Any] = {"max_config_chars": 2000, "max_message_chars": 1000}
    async with serving(**bounds) as server, peer(server, STREAM) as client:
        await client.say("x" * 1001)
        assert (await client.until("error"))[0]["code"] == "limit_exceeded"
        await client.say(b"x" * 2001 if binary else "x" * 2001)
        (error,), code = await client.rest()
        assert (error["code"], code) == ("limit_exceeded", 1009)


async def test_a_configuration_of_megabytes_is_read() -> None:
    # Read, and refused for what it is: this engine cannot clone.
    long = config(ref_audio="A" * 1_500_000, ref_text="x")
    async with serving() as server, peer(server, long, text("Hi"), DONE) as client:
        assert (await client.until("session.done"))[1]["param"] == "ref_audio"


async def test_a_client_that_never_speaks_is_told_and_closed() -> None:
    async with serving(config_timeout_s=0.01) as server, peer(server) as client:
        (error,), code = await client.rest()
        assert (error["code"], code) == ("timeout", 4408)
        await empty(server)


async def test_a_client_that_says_no_more_is_told_and_closed_but_not_in_mid_speech() -> None:
    engine = FakeEngine()
    async with serving(engine, idle_timeout_s=0.05) as server:
        async with peer(server, {**STREAM, "voice": "stall"}, text("Hello"), DONE) as client:
            await client.hear()
            await client.hear()
            loop = asyncio.get_running_loop()
            passed = asyncio.Event()
            loop.call_later(0.1, passed.set)
            await passed.wait()
            engine.release()
            heard = await client.until("session.done")
            assert heard[0]["error"] is False
            (error,), code = await client.rest()
            assert (error["code"], code) == ("timeout", 4408)
        await empty(server)


async def test_a_full_or_stopping_server_says_so_and_closes() -> None:
    async with serving(server={"max_connections": 1}) as server, peer(server, STREAM) as first:
        async with peer(server) as second:
            (error,), code = await second.rest()
            assert (error["code"], error["retryable"], code) == ("server_busy", True, 1013)
        server.service.draining = True
        async with peer(server) as third:
            assert (await third.rest())[1] == 1013
        await first.say(text("Hello"), DONE)
        await first.until("session.done")
        assert first.sound == HELLO


async def test_a_stop_finishes_what_is_open_and_closes_with_1012() -> None:
    engine = FakeEngine()
    async with (
        serving(engine) as server,
        peer(server, config()) as quiet,
        peer(server, {**STREAM, "voice": "step"}, text("Hello"), DONE) as client,
    ):
        await speaking(engine)
        while server.service.connections < 2:
            await settle()
        stopping = asyncio.create_task(server.service.drain(20))
        assert await quiet.rest() == ([], 1012)
        engine.step(9)
        heard, code = await client.rest()
        assert [each["type"] for each in heard] == ["audio.start", "audio.done", "session.done"]
        assert code == 1012
        await stopping


async def test_a_stop_at_once_fails_what_is_said_and_closes_with_1012() -> None:
    engine = FakeEngine()
    async with (
        serving(engine) as server,
        peer(server, {**STREAM, "voice": "stall"}, text("Hello"), DONE) as client,
    ):
        await client.hear()
        await client.hear()
        await server.service.drain(0)
        heard, code = await client.rest()
        assert [each["type"] for each in heard] == ["error", "audio.done"]
        assert heard[0]["code"] == "server_busy"
        assert code == 1012
        await idle(engine)


async def test_bad_clients_disturb_no_good_one() -> None:
    engine = FakeEngine()
    async with serving(engine) as server, peer(server, STREAM) as good:
        bad = [await stack(server.port, number) for number in range(12)]
        for _ in range(5):
            await good.say(text("Hello"), DONE)
            await good.until("session.done")
            assert good.sound == HELLO
        for each in bad:
            each.close()
        while server.service.connections > 1:
            await settle()
        assert engine.active == 0


async def stack(port: int, number: int) -> socket.socket:
    """A client that does half of what it should, and then nothing."""
    one = socket.socket()
    one.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(one, ("127.0.0.1", port))
    shake = (
        f"GET {PATH} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()
    if number % 4 == 0:
        await loop.sock_sendall(one, shake[: len(shake) // 2])
        return one
    await loop.sock_sendall(one, shake)
    await loop.sock_recv(one, 4096)
    frames = [Frame(Opcode.TEXT, json.dumps(STREAM).encode())]
    if number % 4 > 1:
        frames += [
            Frame(Opcode.TEXT, json.dumps(each).encode()) for each in (text("a" * 999), DONE)
        ]
    data = b"".join(frame.serialize(mask=True) for frame in frames)
    await loop.sock_sendall(one, data if number % 4 == 2 else data[:-3])
    return one
