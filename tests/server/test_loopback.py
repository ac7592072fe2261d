"""Client and server over a real socket on 127.0.0.1."""

from __future__ import annotations

import pytest

from qwen3tts_server.run import running_server
from qwen3tts_wire.client import SpeechClient
from qwen3tts_wire.events import Alignment, Audio, Done, Started
from tests.engine.fake_engine import FakeEngine

pytestmark = pytest.mark.network


async def test_a_sentence_comes_back_as_sound() -> None:
    async with (
        running_server(FakeEngine()) as server,
        await SpeechClient.connect(server.url) as client,
    ):
        context = await client.open(voice="tone")
        await context.append("Hello there.")
        await context.end()
        events = [event async for event in context]
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Done)
    sound = b"".join(event.pcm for event in events if isinstance(event, Audio))
    assert len(sound) == 2 * events[-1].samples > 0
    assert [w.text for e in events if isinstance(e, Alignment) for w in e.words] == [
        "Hello",
        "there.",
    ]


async def test_a_cancel_is_answered() -> None:
    async with (
        running_server(FakeEngine()) as server,
        await SpeechClient.connect(server.url) as client,
    ):
        context = await client.open(voice="stall")
        await context.append("Hello there. ")
        async for event in context:
            if isinstance(event, Audio):
                break
        answer = await context.cancel(0)
        assert answer.confirmed
        assert answer.text_remaining == "Hello there. "
