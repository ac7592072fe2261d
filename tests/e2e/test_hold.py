"""Hold and resume between two phones of ours, with sound."""

from __future__ import annotations

import asyncio

import pytest

from qwen3tts_phone.call.events import CallHeld, CallResumed
from qwen3tts_server.run import running_server
from tests.audio import aligned, compare, reference_8k
from tests.e2e.parties import Ear, connected, phone
from tests.peers.recording_engine import RecordingEngine

pytestmark = pytest.mark.network

TEXT = "This sentence is long enough to be put on hold in its middle, and to go on after that."


async def test_a_sentence_put_on_hold_goes_on_where_it_stopped() -> None:
    engine = RecordingEngine()
    async with (
        running_server(engine, host="127.0.0.1", port=0) as server,
        phone(server.url) as agent,
        phone(server.url) as caller,
        connected(agent, caller) as (ours, theirs),
    ):
        ear = Ear(theirs)
        utterance = ours.speak(TEXT)
        await ear.sound(1.0)
        await theirs.hold()
        held = [ours.held]
        at_hold = utterance.position
        await theirs.resume()
        held.append(ours.held)
        assert held == [True, False]
        spoken = await utterance.spoken()
        assert 0 < at_hold < spoken.position
        assert spoken.heard == TEXT
        await ours.hangup()
        heard = await ear.heard()
        events = [type(event) async for event in ours.events]
    assert events.count(CallHeld) == events.count(CallResumed) == 1
    # Before and after the hold, all is there: compare from both ends.
    reference = reference_8k(engine.pcm())
    cut = at_hold // 3
    before, after = reference[: cut - 800], reference[cut + 800 :]
    assert compare(before, aligned(before, heard)).missing == 0
    assert compare(after, aligned(after, heard)).missing == 0


async def test_we_hold_the_caller_while_we_speak_to_nobody() -> None:
    engine = RecordingEngine()
    async with (
        running_server(engine, host="127.0.0.1", port=0) as server,
        phone(server.url) as agent,
        phone(server.url) as caller,
        connected(agent, caller) as (ours, theirs),
    ):
        await ours.hold()
        async with asyncio.timeout(5):
            async for event in theirs.events:
                if isinstance(event, CallHeld):
                    break
        await ours.resume()
        assert (await theirs.say("Back again.")).heard == "Back again."
