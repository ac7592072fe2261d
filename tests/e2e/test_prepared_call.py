"""An utterance is prepared in a call: nothing of it is sent before its release, and then all."""

from __future__ import annotations

import asyncio

import pytest

from qwen3tts_server.run import running_server
from qwen3tts_speech.latency import Mark
from tests.agent.parts import until
from tests.e2e.parties import Ear, connected, phone
from tests.peers.recording_engine import RecordingEngine

pytestmark = pytest.mark.network

TEXT = "This sentence was ready before anybody heard it, and every word of it is said."


@pytest.mark.parametrize("codec", ["PCMU", "opus"])
async def test_it_is_heard_from_its_release_on(codec: str) -> None:
    async with (
        running_server(RecordingEngine(), host="127.0.0.1", port=0) as server,
        phone(server.url, codecs=(codec,)) as agent,
        phone(server.url, codecs=(codec,)) as caller,
        connected(agent, caller) as (ours, theirs),
    ):
        ear = Ear(theirs)
        sent = ours.sent_audio()
        utterance = ours.prepare(TEXT)
        await until(lambda: Mark.RESAMPLED in utterance.record.marks)
        await asyncio.sleep(0.3)
        assert not ours.speaking
        assert not any(frame.samples.any() for frame in sent.take())
        released_at = ours.clock.now()
        utterance.release()
        spoken = await utterance.spoken()
        assert (spoken.heard, spoken.interrupted) == (TEXT, False)
        first = spoken.record.marks[Mark.FIRST_FRAME_WIRE]
        assert first >= released_at
        assert spoken.record.starvations == 0
        await ear.sound(0.2)


async def test_the_engine_is_free_after_one_was_dropped() -> None:
    engine = RecordingEngine()
    async with (
        running_server(engine, host="127.0.0.1", port=0) as server,
        phone(server.url) as agent,
        phone(server.url) as caller,
        connected(agent, caller) as (ours, _theirs),
    ):
        sent = ours.sent_audio()
        for _ in range(5):
            prepared = ours.prepare(TEXT)
            await asyncio.sleep(0.1)
            prepared.drop()
        spoken = await ours.say("Only this.")
        assert spoken.heard == "Only this."
        assert ours.speaker is not None
        assert ours.speaker.utterances == 1
        sounding = [frame for frame in sent.take() if abs(frame.samples).max() > 100]
        assert len(sounding) < 150, "no more than two words"
