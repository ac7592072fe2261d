"""A call whose speech server dies in mid-sentence, and another one that goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from qwen3tts_engine.embedded.engine import EmbeddedEngine, EmbeddedSettings
from qwen3tts_server.run import running_server
from tests.e2e.parties import Ear, connected, phone
from tests.server.relay import relay

pytestmark = pytest.mark.network

FIRST, REST = "One two three four five six seven. ", "Eight nine ten, eleven twelve. And so on."


async def test_a_server_dies_in_mid_sentence_and_the_call_hears_all_of_it() -> None:
    small = EmbeddedSettings(workers=1)
    async with (
        running_server(EmbeddedEngine(small)) as first,
        running_server(EmbeddedEngine(small)) as second,
        relay(first.port) as way,
        phone(f"ws://127.0.0.1:{way.port}/v1/speech") as victim,
        phone(second.url) as caller,
        connected(victim, caller) as (ours, theirs),
    ):
        ear = Ear(theirs)
        dead = asyncio.Event()

        async def words() -> AsyncIterator[str]:
            yield FIRST
            await dead.wait()
            yield REST

        utterance = ours.speak(words())
        await ear.sound()
        way.to = second.port
        way.cut()
        dead.set()
        spoken = await utterance.spoken()
        assert spoken.heard == FIRST + REST
        assert utterance._context is not None
        assert utterance._context.resumed == 1
        assert not spoken.interrupted
        assert (await ours.say("And more.")).heard == "And more."
        assert way.connections >= 2
        await ours.hangup()
        await ear.heard()
