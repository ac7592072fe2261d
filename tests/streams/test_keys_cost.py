"""A machine presses keys on a real call's body: what it can make the model do is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from qwen3tts_agent.agent import Agent
from qwen3tts_agent.chat.messages import ChatMessage
from qwen3tts_agent.settings import AgentSettings
from qwen3tts_phone.detection.endpointing import TURN_GAP_S
from qwen3tts_phone.detection.settings import ListenSettings
from tests.fakes import settle
from tests.streams.calls import streamed

SECONDS = 8.5
KEYS = 3000
"""With a # after each digit; as many turns would be half of that."""


async def test_thousands_of_keys_in_seconds_make_few_requests_to_the_model() -> None:
    chars: list[int] = []

    async def model(messages: Sequence[ChatMessage]) -> AsyncIterator[str]:
        chars.append(sum(len(each.content) for each in messages))
        yield "Fine."

    settings = AgentSettings(quiet_s=0)
    listen = ListenSettings(detector="level")
    async with streamed() as line, Agent(model, stt=None, settings=settings, listen=listen) as it:
        await line.comes("start call-7")
        talking = asyncio.create_task(it.answer(line.call))
        await settle(30)
        for number in range(KEYS):
            await line.comes("key #" if number % 2 else "key 7")
            await line.clock.advance(SECONDS / KEYS)
        assert 1 <= len(chars) <= SECONDS / TURN_GAP_S + 1
        assert sum(chars) < 20_000
        facts = line.call.facts
        assert len(facts.keys_in) + facts.keys_ignored == KEYS
        assert len(facts.keys_in) < 300
        await line.comes("stop")
        await line.over()
        await talking
