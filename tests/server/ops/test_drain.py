"""A server that is to stop lets what is being said finish, whatever its clients speak."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from qwen3tts_server.run import RunningServer, running_server
from qwen3tts_server.settings import AccessSettings, ServerSettings
from qwen3tts_wire.addresses import DIRECT
from tests.engine.fake_engine import FakeEngine
from tests.fakes import settle

pytestmark = pytest.mark.network

WORDS = "Good morning."
ALL_SAID = len(WORDS) * 1200 * 2
"""Bytes of it at 24 kHz."""
STREAM = {
    "model": "tts-1",
    "input": WORDS,
    "voice": "step",
    "stream": True,
    "response_format": "pcm",
}


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[RunningServer, FakeEngine, httpx.AsyncClient]]:
    engine = FakeEngine()
    async with asyncio.timeout(30), running_server(engine) as server:
        base = f"http://127.0.0.1:{server.port}"
        async with httpx.AsyncClient(base_url=base, trust_env=False, timeout=30) as client:
            yield server, engine, client


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await settle()


async def status(client: httpx.AsyncClient) -> tuple[int, str]:
    answer = await client.get("/ready")
    return answer.status_code, answer.json()["status"]


async def test_a_stream_over_http_is_finished_and_nothing_new_begins() -> None:
    async with serving() as (server, engine, client):
        speaking = asyncio.create_task(client.post("/v1/audio/speech", json=STREAM))
        await until(lambda: engine.active == 1)
        draining = asyncio.create_task(server.service.drain(25))
        await until(lambda: server.service.draining)
        assert await status(client) == (503, "draining")
        refused = await client.post("/v1/audio/speech", json=STREAM)
        assert refused.status_code == 503
        assert "retry-after" in refused.headers
        assert not draining.done()
        engine.step(100)
        answer = await speaking
        assert len(answer.content) == ALL_SAID
        await draining
        assert server.service.connections == 0


async def test_a_stream_over_http_that_takes_too_long_is_cut_and_frees_the_engine() -> None:
    async with serving() as (server, engine, client):
        speaking = asyncio.create_task(client.post("/v1/audio/speech", json=STREAM))
        await until(lambda: engine.active == 1)
        await server.service.drain(0)
        assert server.service.connections == 0
        assert engine.active == 0
        try:
            answer = await speaking
        except httpx.HTTPError:
            pass
        else:
            assert answer.status_code == 503


async def received(client: ClientConnection) -> list[Any]:
    """All that comes until the server closes."""
    messages: list[Any] = []
    with contextlib.suppress(ConnectionClosed):
        while True:
            each = await client.recv()
            messages.append(each if isinstance(each, bytes) else json.loads(each))
    return messages


async def test_vllm_omnis_websocket_is_finished_and_closed_with_a_reason() -> None:
    async with serving() as (server, engine, _):
        url = f"ws://127.0.0.1:{server.port}/v1/audio/speech/stream"
        async with connect(url, **DIRECT) as client:
            config = {"voice": "step", "stream_audio": True, "response_format": "pcm"}
            for each in (
                {"type": "session.config", **config},
                {"type": "input.text", "text": WORDS},
                {"type": "input.done"},
            ):
                await client.send(json.dumps(each))
            await until(lambda: engine.active == 1)
            draining = asyncio.create_task(server.service.drain(25))
            await until(lambda: server.service.draining)
            engine.step(100)
            messages = await received(client)
            await draining
        assert sum(len(each) for each in messages if isinstance(each, bytes)) == ALL_SAID
        assert "session.done" in [each["type"] for each in messages if isinstance(each, dict)]
        assert client.close_code in (1001, 1012)


async def test_the_runvnc_protocol_is_finished_and_closed_with_a_reason() -> None:
    async with serving() as (server, engine, _):
        async with connect(f"ws://127.0.0.1:{server.port}/", **DIRECT) as client:
            await client.send(json.dumps({"type": "init", "voice_id": "step"}))
            order = {"type": "generate_stream", "text": WORDS}
            await client.send(json.dumps(order))
            await until(lambda: engine.active == 1)
            draining = asyncio.create_task(server.service.drain(25))
            await until(lambda: server.service.draining)
            engine.step(100)
            messages = await received(client)
            await draining
        frames = [each for each in messages if isinstance(each, bytes)]
        assert len(frames) >= len(WORDS) * 50 // 20
        assert "audio_end" in [each["type"] for each in messages if isinstance(each, dict)]
        assert client.close_code in (1001, 1012)


async def test_who_comes_in_is_asked_before_the_server_is_looked_at() -> None:
    settings = ServerSettings(access=AccessSettings(api_keys=("a-key",)))
    async with asyncio.timeout(30), running_server(FakeEngine(), settings=settings) as server:
        base = f"http://127.0.0.1:{server.port}"
        async with httpx.AsyncClient(base_url=base, trust_env=False) as client:
            assert (await client.get("/v1/models")).status_code == 401
            headers = {"Authorization": "Bearer a-key"}
            assert (await client.get("/v1/models", headers=headers)).status_code == 200
            page = (await client.get("/openapi.json", headers=headers)).json()
            assert page["security"] == [{"key": []}]
            assert page["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
            assert await status(client) == (200, "ready")


async def test_pages_of_an_allowed_origin_may_ask_before_they_send_a_key() -> None:
    origin = "https://softphone.example"
    access = AccessSettings(api_keys=("a-key",), origins=(origin,))
    settings = ServerSettings(access=access)
    asks = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
    }
    async with asyncio.timeout(30), running_server(FakeEngine(), settings=settings) as server:
        base = f"http://127.0.0.1:{server.port}"
        async with httpx.AsyncClient(base_url=base, trust_env=False) as client:
            answer = await client.options("/v1/audio/speech", headers=asks)
            assert answer.status_code == 200
            assert answer.headers["access-control-allow-origin"] == origin
            told = await client.get("/v1/models", headers={"Origin": origin})
            assert told.status_code == 401
            assert told.headers["access-control-allow-origin"] == origin
            asks["Origin"] = "https://evil.example"
            assert (await client.options("/v1/audio/speech", headers=asks)).status_code == 400
