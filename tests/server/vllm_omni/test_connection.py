"""One connection with a WebSocket that a test holds shut or breaks."""

from __future__ import annotations

import asyncio
import json
from typing import cast

import pytest
from starlette.websockets import WebSocket

from qwen3tts_server.dialects.encoding import EncodingThreads
from qwen3tts_server.dialects.vllm_omni.connection import serve_stream
from qwen3tts_server.dialects.vllm_omni.session import VllmOmniSession
from qwen3tts_server.service import Service
from qwen3tts_server.settings import ServerSettings
from tests.engine.fake_engine import FakeEngine
from tests.fakes import settle
from tests.server.test_connection import FakeSocket
from tests.server.vllm_omni.line import CLOSE, DONE, SENTENCES, STREAM, text


class Visitor(FakeSocket):
    accepted = False

    async def accept(self, subprotocol: str | None = None) -> None:
        self.accepted = True


async def visited(engine: FakeEngine | None = None) -> tuple[Service, Visitor, asyncio.Task[None]]:
    service = Service(engine or FakeEngine(), ServerSettings())
    await service.start()
    visitor = Visitor()
    task = asyncio.create_task(serve_stream(cast(WebSocket, visitor), service))
    return service, visitor, task


async def test_a_client_that_takes_nothing_holds_back_its_engine() -> None:
    engine = FakeEngine()
    service, visitor, task = await visited(engine)
    visitor.say(STREAM)
    visitor.open.clear()
    visitor.say(text("word " * 400), DONE)
    await settle(200)
    assert engine.active == 1
    assert engine.finished == 0
    visitor.open.set()
    visitor.say(CLOSE)
    async with asyncio.timeout(10):
        await task
    assert engine.finished > 0
    assert json.loads(cast(str, visitor.sent[-1]))["type"] == "session.done"
    assert visitor.closed == (1000, "")
    assert service.connections == 0


async def test_all_sentences_of_an_utterance_share_their_voice() -> None:
    engine = FakeEngine()
    _, visitor, task = await visited(engine)
    visitor.say(SENTENCES, text("One is said. Two is said. "), DONE, text("Three is said."), DONE)
    visitor.say(CLOSE)
    async with asyncio.timeout(10):
        await task
    one, two, three = (request.context for request in engine.requests)
    assert one is two is not None
    assert three is not one


async def test_a_client_that_is_gone_while_it_is_written_to_ends_everything() -> None:
    engine = FakeEngine()
    service, visitor, task = await visited(engine)
    visitor.say(SENTENCES, text("One. Two. "))
    visitor.broken = True
    await settle(50)
    visitor.leave()
    async with asyncio.timeout(10):
        await task
    assert engine.active == 0
    assert service.connections == 0
    assert visitor.closed is None


async def test_a_defect_ends_with_1011_and_its_traceback_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    service, visitor, task = await visited()
    await settle()
    monkeypatch.setattr(VllmOmniSession, "receive", broken)
    visitor.say(STREAM)
    async with asyncio.timeout(10):
        await task
    assert visitor.closed == (1011, "the server broke")
    assert "a defect" in caplog.text
    assert service.connections == 0


async def test_a_defect_in_a_unit_ends_only_the_unit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    _, visitor, task = await visited()
    monkeypatch.setattr(EncodingThreads, "whole", broken)
    visitor.say({"type": "session.config"}, text("Hi"), DONE, STREAM, text("Hi"), DONE, CLOSE)
    async with asyncio.timeout(10):
        await task
    kinds = visitor.types()
    assert kinds == [
        *("audio.start", "error", "audio.done", "session.done"),
        *("audio.start", "audio.done", "session.done"),
    ]
    assert "a defect" in caplog.text
    assert visitor.closed == (1000, "")
