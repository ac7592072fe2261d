"""The door of the server: who is let in, and how it closes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, cast

import httpx
from starlette.websockets import WebSocket

from qwen3tts_engine.base import Mode, Voice
from qwen3tts_engine.wrapped import WrappedEngine
from qwen3tts_server.app import create_app
from qwen3tts_server.dialects.native.connection import serve_speech
from qwen3tts_server.dialects.native.greeting import Greeting, Greetings
from qwen3tts_server.service import Service
from qwen3tts_server.settings import ServerSettings
from qwen3tts_wire.messages import PROTOCOL, Limits
from tests.engine.fake_engine import FakeEngine
from tests.fakes import settle
from tests.server.test_connection import FakeSocket


class Visitor(FakeSocket):
    """A WebSocket before it is accepted."""

    def __init__(self, *subprotocols: str) -> None:
        super().__init__()
        self.scope: dict[str, Any] = {"subprotocols": list(subprotocols)}
        self.accepted: str | None = ""

    async def accept(self, subprotocol: str | None = None) -> None:
        self.accepted = subprotocol


async def serve(visitor: Visitor, service: Service) -> None:
    greetings = Greetings(service.voices, service.settings.limits)
    await serve_speech(cast(WebSocket, visitor), service, greetings)


async def visit(service: Service, *subprotocols: str) -> Visitor:
    """Come, and be turned away."""
    visitor = Visitor(*subprotocols)
    await serve(visitor, service)
    return visitor


async def test_without_the_subprotocol_the_close_says_which_one_is_required() -> None:
    service = Service(FakeEngine(), ServerSettings())
    await service.start()
    for offered in ((), ("chat",)):
        visitor = await visit(service, *offered)
        assert visitor.accepted is None
        assert visitor.closed == (1002, f"the subprotocol {PROTOCOL} is required")


async def test_a_server_that_is_not_ready_or_stopping_says_try_again() -> None:
    service = Service(FakeEngine(), ServerSettings())
    assert (await visit(service, PROTOCOL)).closed == (
        1013,
        "The server is stopping or not ready. Try again later.",
    )
    await service.start()
    service.draining = True
    assert (await visit(service, PROTOCOL)).closed is not None


async def test_a_drain_waits_for_the_last_connection() -> None:
    service = Service(FakeEngine(), ServerSettings())
    await service.start()
    visitor = Visitor("other", PROTOCOL)
    serving = asyncio.create_task(serve(visitor, service))
    await settle()
    assert visitor.accepted == PROTOCOL
    assert service.connections == 1
    await service.drain(1.0)
    assert visitor.closed == (1012, "the server is stopping; connect again")
    assert visitor.types() == ["session.created", "server.draining"]
    await serving
    assert service.connections == 0
    await service.close()


async def test_the_application_starts_and_frees_its_engine() -> None:
    engine = FakeEngine()
    app = create_app(engine)
    async with app.router.lifespan_context(app):
        assert engine.started
    assert not engine.started


async def test_starting_twice_is_starting_once() -> None:
    engine = FakeEngine()
    service = Service(engine, ServerSettings())
    await service.start()
    engine.started = False
    await service.start()
    assert not engine.started
    await service.close()
    await service.close()


class Growing(FakeEngine):
    """Counts how often its voices' modes are asked for, and can have one more voice."""

    asked = 0
    extra: tuple[Voice, ...] = ()

    def voices(self) -> tuple[Voice, ...]:
        return (*super().voices(), *self.extra)

    def modes(self, voice: str | None) -> Sequence[Mode]:
        self.asked += 1
        return ("clause",)


def test_the_same_offer_is_written_once() -> None:
    engine = Growing()
    greeting = Greeting(engine, Limits())
    first = greeting.text()
    asked = engine.asked
    assert greeting.text() is first
    assert engine.asked == asked


def test_a_new_voice_and_a_new_model_are_told_to_the_next_client() -> None:
    engine = Growing()
    greeting = Greeting(engine, Limits())
    before = json.loads(greeting.text())
    engine.extra = (Voice("new", "New", "en"),)
    after = json.loads(greeting.text())
    assert [each["id"] for each in after["voices"]] == [
        *(each["id"] for each in before["voices"]),
        "new",
    ]
    engine.model = "other tones"
    assert json.loads(greeting.text())["model"] == "other tones"


class Away(FakeEngine):
    there = True

    def healthy(self) -> bool:
        return self.there


async def test_ready_follows_the_start_the_engines_health_and_the_drain() -> None:
    engine = Away()
    app = create_app(WrappedEngine(engine))
    service = app.state.service

    async def asked() -> tuple[int, str]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answer = await client.get("/ready")
            assert (await client.get("/health")).status_code == 200
        return answer.status_code, answer.json()["status"]

    assert await asked() == (503, "starting")
    await service.start()
    assert await asked() == (200, "ready")
    engine.there = False
    assert await asked() == (503, "engine away")
    engine.there = True
    await service.drain(0)
    assert await asked() == (503, "draining")
    await service.close()
