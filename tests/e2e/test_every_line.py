"""One program of a user's, unchanged, on a call over SIP, from Asterisk, a carrier, a browser."""

from __future__ import annotations

import asyncio
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_agent import CallbackRecogniser
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone import Call, CallEnded, Phone, Spoken, Streams, Turn
from qwen3tts_server.run import running_server
from qwen3tts_speech.link import SpeechLink
from tests.e2e.far_ends import FarEnd, SipFar, audiosocket_far, speech, twilio_far
from tests.softphone.webrtc.calls import web_call

pytestmark = pytest.mark.network

QUESTION = "Please say your name."
STORY = "One two three four five six seven eight nine ten. " * 8


@dataclass
class Outcome:
    asked: Spoken
    turn: Turn
    pin: str
    told: Spoken
    sent_s: float


async def program(call: Call, path: Path, steps: asyncio.Queue[str]) -> Outcome:
    """What a user writes, but for the steps by which the test follows it."""
    recogniser = CallbackRecogniser(lambda samples, rate_hz: f"{len(samples) / rate_hz:.0f} s")
    await call.answer()
    call.record(path)
    with call.sent_audio() as sent:
        asked = await call.say(QUESTION)
        sent_s = sum(frame.duration_s for frame in sent.take())
    async with call.hear(recogniser=recogniser) as turns:
        steps.put_nowait("listens")
        turn = await anext(turns)
    steps.put_nowait("takes keys")
    pin = await call.dtmf.collect(most=3)
    utterance = call.speak(STORY)
    async with call.hear() as turns:
        steps.put_nowait("talks")
        await anext(turns)
    told = await utterance.spoken()
    await call.hangup()
    await recogniser.close()
    return Outcome(asked, turn, pin, told, sent_s)


@asynccontextmanager
async def own_link(url: str) -> AsyncIterator[SpeechLink]:
    link = SpeechLink(url)
    yield link
    await link.close()


@asynccontextmanager
async def over(line: str, url: str) -> AsyncIterator[tuple[Call, FarEnd]]:
    """A call that has come in by that line, and its other end."""
    if line == "sip":
        mute = SpeechLink("ws://127.0.0.1:1/v1/speech")
        async with Phone(server_url=url) as ours, Phone(link=mute) as theirs:
            far = await theirs.dial(ours.uri)
            yield await anext(aiter(ours)), SipFar(far)
        return
    if line == "webrtc":
        async with own_link(url) as link, web_call(link) as (web, browser):
            yield web, browser
        return
    async with Streams(server_url=url, kinds=(line,), insecure=True) as streams:
        there = (
            audiosocket_far(streams.audiosocket_port)
            if line == "audiosocket"
            else twilio_far(streams.port)
        )
        async with there as far_end:
            yield await anext(aiter(streams)), far_end


def loud_s(track: NDArray[np.int16], rate_hz: int) -> float:
    count = rate_hz // 50
    frames = track[: len(track) // count * count].reshape(-1, count).astype(int)
    return float((np.abs(frames).max(axis=1) > 500).sum()) / 50


@pytest.mark.parametrize("line", ["sip", "audiosocket", "twilio", "webrtc"])
async def test_a_program_has_the_same_call_on_every_line(line: str, tmp_path: Path) -> None:
    engine = EmbeddedEngine()
    steps: asyncio.Queue[str] = asyncio.Queue()
    async with (
        asyncio.timeout(60),
        running_server(engine, host="127.0.0.1", port=0) as server,
        over(line, server.url) as (call, far),
    ):
        name = await speech(engine, "My name is Ferdinand.")
        cut_in = await speech(engine, "Stop, I have a question.")
        running = asyncio.create_task(program(call, tmp_path / "call.wav", steps))
        assert await steps.get() == "listens"
        await far.say(name)
        assert await steps.get() == "takes keys"
        await far.press("471")
        assert await steps.get() == "talks"
        async for sent_s in sound_of(call):
            if sent_s >= 0.5:
                break
        await far.say(cut_in)
        done = await running
        await far.over()
        assert await call.ended() == "we hung up"
    assert call.line == line
    assert (done.asked.heard, done.asked.interrupted) == (QUESTION, False)
    assert done.sent_s == pytest.approx(done.asked.position / 24_000, abs=0.1)
    assert done.turn.text.endswith(" s")
    assert done.turn.ended_at - done.turn.began_at == pytest.approx(len(name) / 8000, abs=0.8)
    assert done.pin == "471"
    assert done.told.interrupted
    assert done.told.heard + done.told.remaining == STORY
    assert 0 < len(done.told.heard) < len(STORY)
    events = [event async for event in call.events]
    assert isinstance(events[-1], CallEnded)
    assert call.detail_record is not None
    record = call.detail_record.values
    assert (record["line"], record["turns"], record["barge_ins"]) == (line, 2, 1)
    assert (record["dtmf_in"], record["odd"]) == (3, {})
    # Where the tests run beside others, a frame may go out late.
    assert set(record["findings"]) <= {"machine_late"}
    with wave.open(str(tmp_path / "call.wav"), "rb") as file:
        both = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, 2)
        caller, agent = (loud_s(both[:, side], file.getframerate()) for side in (0, 1))
    # Both ends of WebRTC are in this process: on a busy machine some of it comes too late.
    least = 0.3 if line == "webrtc" else 0.5
    assert caller > least * (len(name) + len(cut_in)) / 8000
    assert agent > 1.0


async def sound_of(call: Call) -> AsyncIterator[float]:
    """Seconds of speech that have gone out, as they do."""
    total_s = 0.0
    with call.sent_audio() as sent:
        while True:
            await call.clock.sleep_until(call.clock.now() + 0.02)
            total_s += sum(frame.duration_s for frame in sent.take())
            yield total_s
