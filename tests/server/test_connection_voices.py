"""Voices that are made for one connection, beside its speech."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from qwen3tts_wire.errors import UnknownVoice
from tests.engine.fake_engine import CloningEngine
from tests.fakes import settle
from tests.server.test_connection import END, HELLO, OPEN, Served

LOAD: dict[str, Any] = {"type": "voice.load", "request_id": "r1"}


async def answer(served: Served, request_id: str = "r1") -> dict[str, Any]:
    """Wait for the answer to a request."""
    async with asyncio.timeout(5):
        while True:
            for each in served.socket.sent:
                if isinstance(each, str):
                    message: dict[str, Any] = json.loads(each)
                    if message.get("request_id") == request_id:
                        return message
            await asyncio.sleep(0)


def cloning() -> tuple[CloningEngine, Served]:
    engine = CloningEngine()
    return engine, Served(engine)


@pytest.mark.parametrize("before", ["", "data:audio/wav;base64,", "DATA:;BASE64,"])
async def test_the_engine_gets_the_bytes_of_the_file(before: str) -> None:
    engine, served = cloning()
    async with served:
        audio = before + base64.b64encode(b"RIFF....").decode()
        served.socket.say({**LOAD, "ref_audio": audio, "ref_text": "Hi.", "x_vector_only": True})
        assert await answer(served) == {
            "type": "voice.ready",
            "request_id": "r1",
            "voice_id": "voice-8",
            "cached": False,
            "ref_text": "Hi.",
        }
        served.socket.say({**LOAD, "request_id": "r2", "voice_id": "known", "ref_text": ""})
        assert (await answer(served, "r2"))["cached"]
    assert engine.loads == [(None, b"RIFF....", "Hi.", True), ("known", None, None, False)]


@pytest.mark.parametrize(
    "audio",
    ["?", "AAA", "AAAA\n", "\u00e4\u00e4\u00e4\u00e4", "data:,AAAA", "data:;base64,?", "data:"],
)
async def test_what_is_not_base64_is_refused(audio: str) -> None:
    engine, served = cloning()
    async with served:
        served.socket.say({**LOAD, "ref_audio": audio})
        message = await answer(served)
    assert (message["code"], message["ends"]) == ("bad_request", "none")
    assert "base64" in message["message"]
    assert engine.loads == []


@pytest.mark.parametrize(
    ("error", "code"),
    [(UnknownVoice("No such voice.", remedy="Load it."), "unknown_voice"), (ValueError(), "")],
)
async def test_what_the_engine_refuses_is_an_error_of_the_request(
    error: Exception, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine, served = cloning()
    engine.error = error
    async with served:
        served.socket.say({**LOAD, "voice_id": "x"})
        message = await answer(served)
    assert message["code"] == (code or "engine_failed")
    assert ("loading a voice" in caplog.text) == (not code)


async def test_speech_goes_on_while_a_voice_is_loaded() -> None:
    engine, served = cloning()
    engine.gate.clear()
    async with served:
        served.socket.say({**LOAD, "voice_id": "x"}, OPEN, HELLO, END)
        while "context.done" not in served.socket.types():
            await settle()
        assert "voice.ready" not in served.socket.types()
        engine.gate.set()
        assert (await answer(served))["type"] == "voice.ready"


async def test_a_client_that_leaves_gives_up_its_voices() -> None:
    engine, served = cloning()
    engine.gate.clear()
    async with served:
        served.socket.say({**LOAD, "voice_id": "x"})
        while not engine.loads:
            await settle()
    assert engine.given_up == 1


async def test_an_engine_that_loads_none_says_so() -> None:
    async with Served() as served:
        served.socket.say({**LOAD, "voice_id": "x"})
        message = await answer(served)
    assert message["message"] == "This engine cannot clone: it makes no voices of recordings."
