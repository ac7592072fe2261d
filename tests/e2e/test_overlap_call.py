"""A caller speaks over an agent in a real call: "mhm" leaves it speaking, another word stops it."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_agent.recognition.callback import CallbackRecogniser
from qwen3tts_phone.detection.events import ListenEvent, OverlapEnded, Turn
from qwen3tts_phone.detection.recogniser import Transcript
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_server.run import running_server
from tests.e2e.parties import Ear, connected, phone
from tests.peers.recording_engine import RecordingEngine
from tests.phone.sounds import speech

pytestmark = pytest.mark.network

TEXT = "This sentence is long enough to be lowered in its middle. And here is one more, at last."
SETTINGS = ListenSettings(detector="level", overlap="duck", grace_ms=0, adaptive_pause=False)


@pytest.mark.parametrize(("words", "rule"), [("Mm-hmm.", "words"), ("Wait.", "stop_word")])
async def test_words_decide_what_speech_over_the_agents_does(words: str, rule: str) -> None:
    stops = rule == "stop_word"
    events: list[ListenEvent] = []
    turns: list[Turn] = []

    async def recognise(samples: NDArray[np.int16], rate_hz: int) -> Transcript:
        return Transcript(words, "en")

    async with (
        running_server(RecordingEngine(), host="127.0.0.1", port=0) as server,
        phone(server.url) as agent,
        phone(server.url) as caller,
        connected(agent, caller) as (ours, theirs),
    ):
        listening = ours.hear(SETTINGS, CallbackRecogniser(recognise, early=True))
        listening.on_event = events.append

        async def read() -> None:
            async for turn in listening:
                turns.append(turn)

        reading = asyncio.create_task(read())
        ear = Ear(theirs)
        utterance = ours.speak(TEXT)
        await ear.sound(0.6)
        await theirs.play(speech(0.3), 8000)
        spoken = await utterance.spoken()
        await asyncio.sleep(1.0)
        await ours.hangup()
        await reading
    verdicts = [(each.verdict, each.rule) for each in events if isinstance(each, OverlapEnded)]
    assert verdicts == [("interruption" if stops else "backchannel", rule)]
    assert spoken.interrupted == stops
    if stops:
        assert TEXT.startswith(spoken.heard.rstrip())
        assert spoken.heard + spoken.remaining == TEXT
        assert [(turn.text, turn.interrupted) for turn in turns] == [(words, (utterance,))]
    else:
        assert spoken.heard == TEXT
        assert turns == []
