"""An agent is checked before its first call: the model and the recogniser side by side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from qwen3tts_agent import Agent, CallbackRecogniser
from qwen3tts_agent.chat.client import ModelRefused, ModelUnavailable
from qwen3tts_phone.call.call import Call
from qwen3tts_phone.detection.recogniser import RecogniserUnavailable
from qwen3tts_wire.errors import BadRequest
from tests.agent.endpoint import Answer, ChatEndpoint

pytestmark = pytest.mark.network


async def no_calls() -> AsyncIterator[Call]:
    calls: list[Call] = []
    for call in calls:
        yield call


class Missing(CallbackRecogniser):
    async def warm(self) -> None:
        raise RecogniserUnavailable("the model is not here.", remedy="Fetch it.")


async def test_the_model_is_asked_while_the_recogniser_loads() -> None:
    loading, asked = asyncio.Event(), asyncio.Event()

    class Slow(CallbackRecogniser):
        async def warm(self) -> None:
            loading.set()
            await asked.wait()

    async with (
        asyncio.timeout(20),
        ChatEndpoint() as endpoint,
        Agent(endpoint.url, stt=Slow(lambda samples, rate_hz: "")) as agent,
    ):
        checking = asyncio.create_task(agent.check())
        await loading.wait()
        await endpoint.checked()
        asked.set()
        await checking
    assert endpoint.requests == []


async def test_a_recogniser_that_is_not_there_is_told() -> None:
    async with (
        ChatEndpoint() as endpoint,
        Agent(endpoint.url, stt=Missing(lambda samples, rate_hz: "")) as agent,
    ):
        with pytest.raises(RecogniserUnavailable):
            await agent.check()


async def test_what_will_not_pass_ends_the_service_before_its_first_call() -> None:
    async with (
        ChatEndpoint(check=Answer(status=401, body=b"{}")) as endpoint,
        Agent(endpoint.url, stt=None) as agent,
    ):
        with pytest.raises(ModelRefused, match="key"):
            await agent.serve(no_calls())


async def test_a_model_that_is_not_there_yet_is_logged_and_calls_are_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        ChatEndpoint(check=Answer(status=503, body=b"{}")) as endpoint,
        Agent(endpoint.url, stt=None) as agent,
    ):
        await agent.serve(no_calls())
        with pytest.raises(ModelUnavailable):
            await agent.check()
    (line,) = [record.message for record in caplog.records if "model" in record.message]
    assert "(503)" in line
    assert "Try again later." in line


async def test_a_source_of_the_programs_own_is_not_asked() -> None:
    async def parrot(messages: object) -> AsyncIterator[str]:
        asked.append(messages)
        yield "Yes."

    asked: list[object] = []
    async with Agent(parrot, stt=None) as agent:
        await agent.check()
    assert asked == []


def test_a_greeting_without_a_speakable_sign_is_refused() -> None:
    with pytest.raises(BadRequest, match="greeting holds nothing that can be spoken"):
        Agent("http://127.0.0.1:1/v1", stt=None, greeting="…")
    Agent("http://127.0.0.1:1/v1", stt=None, greeting="")
