"""Sockets that leave the server waiting, too many of them, and too large messages."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets import Subprotocol
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from qwen3tts_server.run import (
    RunningServer,
    _listen,
    largest_message,
    running_server,
)
from qwen3tts_server.settings import AccessSettings, ServerSettings
from qwen3tts_server.sockets import SocketCounter
from qwen3tts_wire.addresses import DIRECT
from qwen3tts_wire.messages import PROTOCOL, Limits
from qwen3tts_wire.process import raise_descriptor_limit
from tests.engine.fake_engine import FakeEngine
from tests.fakes import settle

pytestmark = pytest.mark.network

SHORT = 0.05
"""Seconds, where a test waits for a time to be over."""
GET = b"GET /health HTTP/1.1\r\nHost: tts\r\n\r\n"


@asynccontextmanager
async def serving(engine: FakeEngine | None = None, **access: Any) -> AsyncIterator[RunningServer]:
    settings = ServerSettings(access=AccessSettings(**access))
    async with (
        asyncio.timeout(30),
        running_server(engine or FakeEngine(), settings=settings) as server,
    ):
        yield server


async def said(server: RunningServer, data: bytes) -> bytes:
    """All that comes until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(data)
        return await reader.read()
    finally:
        writer.close()


def native(server: RunningServer) -> connect:
    return connect(server.url, subprotocols=[Subprotocol(PROTOCOL)], **DIRECT)


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await settle()


def error_of(answer: bytes) -> dict[str, Any]:
    error = json.loads(answer.rpartition(b"\r\n\r\n")[2])["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return dict(error)


@pytest.mark.parametrize("begun", [b"", b"G", b"GET / HTTP/1.1\r\nHost: tts\r\nX: "])
async def test_a_head_that_does_not_come_ends_the_connection(begun: bytes) -> None:
    async with serving(head_timeout_s=SHORT) as server:
        answer = await said(server, begun)
    assert status_of(answer) == 408
    assert error_of(answer)["code"] == "request_timeout"


async def test_the_head_of_a_second_request_has_the_same_time() -> None:
    async with serving(head_timeout_s=SHORT) as server:
        answer = await said(server, GET + b"GET /hea")
    first, second = answer.split(b"HTTP/1.1 ")[1:]
    assert (first[:3], second[:3]) == (b"200", b"408")


async def test_between_two_requests_there_is_the_time_of_keep_alive() -> None:
    async with serving(head_timeout_s=SHORT, keep_alive_s=2 * SHORT) as server:
        answer = await said(server, GET)
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("path", ["/v1/audio/speech", "/nowhere", "/health"])
async def test_a_body_that_does_not_come_ends_the_connection(path: str) -> None:
    engine = FakeEngine()
    head = f"POST {path} HTTP/1.1\r\nHost: tts\r\nContent-Type: application/json\r\n"
    async with serving(engine, body_timeout_s=SHORT) as server:
        answer = await said(server, head.encode() + b'Content-Length: 999\r\n\r\n{"input": ')
        assert status_of(answer) in (404, 405, 408)
        assert server.service.connections == 0
    assert not engine.requests


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 70_000,
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\nzz",
    ],
    ids=lambda garbage: repr(garbage[:24]),
)
async def test_what_is_no_http_is_told_so(garbage: bytes) -> None:
    async with serving(body_timeout_s=SHORT, keep_alive_s=SHORT) as server:
        answer = await said(server, garbage)
    assert status_of(answer) in (400, 404, 405, 408)
    if status_of(answer) == 400:
        assert error_of(answer)["type"] == "invalid_request_error"


@pytest.mark.parametrize("bound", ["max_sockets", "max_sockets_per_address"])
async def test_one_socket_too_many_is_refused_and_its_place_is_free_again(bound: str) -> None:
    async with serving(None, **{bound: 1}) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        answer = await said(server, b"")
        assert status_of(answer) == 503
        assert b"retry-after: 1\r\n" in answer
        assert error_of(answer)["code"] == "server_busy"
        writer.write(GET)
        assert b"200 OK" in await reader.readuntil(b"\r\n")
        writer.close()
        while status_of(again := await said(server, GET.replace(b"\r\n\r\n", CLOSE))) == 503:
            pass
        assert status_of(again) == 200


CLOSE = b"\r\nConnection: close\r\n\r\n"


async def test_a_websocket_keeps_the_place_of_its_socket() -> None:
    async with serving(max_sockets=1) as server:
        async with native(server):
            assert status_of(await said(server, b"")) == 503
        while status_of(again := await said(server, GET.replace(b"\r\n\r\n", CLOSE))) == 503:
            pass
        assert status_of(again) == 200


def test_sockets_are_counted_and_forgotten() -> None:
    sockets = SocketCounter(AccessSettings(max_sockets=3, max_sockets_per_address=2))
    assert [sockets.came(each) for each in "aaabb"] == [True, True, False, True, False]
    for each in "aab":
        sockets.went(each)
    assert sockets.open == 0
    assert not sockets._by_address
    assert SocketCounter(AccessSettings(max_sockets=0)).came("")


async def test_a_client_that_takes_nothing_is_given_up_and_its_work_stops() -> None:
    engine = FakeEngine()
    body = {"model": "tts-1", "input": "word " * 800, "voice": "tone", "response_format": "pcm"}
    sent = json.dumps(body).encode()
    head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: tts\r\nContent-Length: {len(sent)}\r\n"
    async with serving(engine, unread_timeout_s=0.3) as server:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(client, ("127.0.0.1", server.port))
            head += "Content-Type: application/json\r\n\r\n"
            await loop.sock_sendall(client, head.encode() + sent)
            await until(lambda: server.service.connections > 0)
            await server.service._idle.wait()
        assert engine.active == 0


@pytest.mark.parametrize(
    "settings",
    [
        ServerSettings(access=AccessSettings(unread_timeout_s=0.3)),
        ServerSettings(ping_interval_s=0.2, ping_timeout_s=0.2),
    ],
    ids=["unread", "ping"],
)
async def test_a_websocket_that_takes_nothing_is_given_up_and_its_work_stops(
    settings: ServerSettings,
) -> None:
    engine = FakeEngine()
    config = {"voice": "tone", "stream_audio": True, "response_format": "pcm"}
    messages = [
        {"type": "session.config", **config},
        {"type": "input.text", "text": "word " * 2000},
        {"type": "input.done"},
    ]
    async with asyncio.timeout(30), running_server(engine, settings=settings) as server:
        url = f"ws://127.0.0.1:{server.port}/v1/audio/speech/stream"
        client = await connect(url, ping_interval=None, **DIRECT)
        for each in messages:
            await client.send(json.dumps(each))
        await until(lambda: engine.active == 1)
        client.transport.pause_reading()
        await server.service._idle.wait()
        assert engine.active == 0
        client.transport.abort()


@pytest.mark.parametrize(
    ("most", "soft", "hard", "asked"),
    [
        (2048, 1024, 4096, (2560, 4096)),
        (2048, 1024, 2000, (2000, 2000)),
        (2048, 4096, 4096, None),
        (65_536, 1024, resource.RLIM_INFINITY, (66_048, resource.RLIM_INFINITY)),
        (9, resource.RLIM_INFINITY, resource.RLIM_INFINITY, None),
    ],
)
def test_the_process_may_hold_as_many_sockets_as_the_settings_say(
    monkeypatch: pytest.MonkeyPatch, most: int, soft: int, hard: int, asked: tuple[int, int] | None
) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: told.append(limits))
    granted = raise_descriptor_limit(most)
    assert granted == (soft if asked is None else asked[0])
    assert told == ([] if asked is None else [asked])


def test_what_nobody_acknowledges_ends_with_the_connection() -> None:
    with _listen("127.0.0.1", 0, 7.0) as listener:
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 7000


# --- messages ---


def test_the_largest_message_of_any_protocol_can_be_received() -> None:
    settings = ServerSettings()
    assert largest_message(settings) >= settings.runvnc.max_init_bytes
    assert largest_message(settings) >= settings.limits.max_message_bytes
    assert largest_message(settings) >= 4 * settings.vllm_omni.max_config_chars


@pytest.mark.parametrize(
    "message",
    ["x" * 3001, "é" * 1501, "€" * 1001, b"x" * 3001, "x" * 100_000],
    ids=lambda message: repr(message[:1]) + str(len(message)),
)
async def test_our_protocol_closes_with_1009_above_its_own_bound(message: str | bytes) -> None:
    settings = ServerSettings(limits=Limits(max_message_bytes=3000))
    async with asyncio.timeout(30), running_server(FakeEngine(), settings=settings) as server:
        async with native(server) as client:
            await client.recv()
            await client.send(message)
            await client.wait_closed()
        assert client.close_code == 1009
        assert "3000 bytes" in (client.close_reason or "")
        assert server.service.connections == 0


@pytest.mark.parametrize("message", ["x" * 3000, "é" * 1500, b"x" * 3000], ids=len)
async def test_below_its_bound_it_answers(message: str | bytes) -> None:
    settings = ServerSettings(limits=Limits(max_message_bytes=3000))
    async with (
        asyncio.timeout(30),
        running_server(FakeEngine(), settings=settings) as server,
        native(server) as client,
    ):
        await client.recv()
        await client.send(message)
        assert json.loads(await client.recv())["type"] == "error"


async def test_above_every_bound_the_connection_is_closed_with_1009_too() -> None:
    settings = ServerSettings()
    async with asyncio.timeout(30), running_server(FakeEngine(), settings=settings) as server:
        async with native(server) as client:
            await client.recv()
            with contextlib.suppress(ConnectionClosed):  # it may come while this is sent
                await client.send("x" * (largest_message(settings) + 1))
            await client.wait_closed()
        assert client.close_code == 1009
