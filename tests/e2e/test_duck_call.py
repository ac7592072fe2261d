"""The agent is lowered in a call, and what it says is heard whole."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_phone.audio.frames import HeardFrame, SentFrame
from qwen3tts_phone.phone import Phone, PhoneSettings
from qwen3tts_server.run import running_server
from tests.e2e.parties import Ear, connected, phone
from tests.e2e.test_every_line import over
from tests.peers.baresip_runner import baresip
from tests.peers.recording_engine import RecordingEngine

pytestmark = pytest.mark.network

TEXT = "This sentence is long enough to be lowered in its middle, and every word of it is said."


def tone(seconds: float) -> NDArray[np.int16]:
    samples = np.arange(round(seconds * 8000))
    return np.round(9000 * np.sin(2 * np.pi * 313.7 * samples / 8000)).astype(np.int16)


def level(frame: HeardFrame | SentFrame) -> float:
    return float(10 * np.log10(np.mean(frame.samples.astype(float) ** 2) + 1))


@pytest.mark.parametrize("codec", ["PCMU", "PCMA"])
async def test_the_far_end_hears_12_db_less_within_a_frame(codec: str) -> None:
    async with (
        running_server(RecordingEngine(), host="127.0.0.1", port=0) as server,
        phone(server.url, codecs=(codec,)) as agent,
        phone(server.url, codecs=(codec,)) as caller,
        connected(agent, caller) as (ours, theirs),
    ):
        ear = Ear(theirs)
        sent = ours.sent_audio()
        playing = asyncio.create_task(ours.play(tone(3.0), 8000))
        await ear.sound(1.0)
        ducked_at = ours.clock.now()
        assert ours.duck() == "duck"
        await ear.sound(1.5)
        up_at = ours.clock.now()
        ours.unduck()
        assert await playing
        frames = sent.take()
        await ours.hangup()
        await ear.heard()
    full = level(frames[5])
    # The time of a frame is that of its slot; the one in which the word was written may be either.
    low = [level(each) for each in frames if ducked_at + 0.02 < each.at < up_at]
    assert len(low) > 10
    assert all(full - each == pytest.approx(12, abs=1) for each in low)
    after = [level(each) for each in frames[:-1] if each.at > up_at + 0.02]
    assert all(each == pytest.approx(full, abs=0.5) for each in after)
    assert all(
        level(each) == pytest.approx(full, abs=0.5) for each in frames[2:] if each.at < ducked_at
    )
    # What the taps carry is what was heard, sample by sample.
    heard = [each.samples for each in ear.frames if np.abs(each.samples.astype(int)).max() > 100]
    known = [each.samples for each in frames if np.abs(each.samples.astype(int)).max() > 100]
    assert 0 <= len(heard) - len(known) <= 1  # the fade of the last one
    assert np.array_equal(np.concatenate(heard[: len(known)]), np.concatenate(known))


@pytest.mark.parametrize("codec", ["G722", "opus"])
async def test_other_codecs_pause_and_nothing_is_lost(codec: str) -> None:
    async with (
        running_server(RecordingEngine(), host="127.0.0.1", port=0) as server,
        phone(server.url, codecs=(codec,)) as agent,
        phone(server.url, codecs=(codec,)) as caller,
        connected(agent, caller) as (ours, theirs),
    ):
        ear = Ear(theirs)
        utterance = ours.speak(TEXT)
        await ear.sound(1.0)
        assert ours.duck() == "hold"
        await asyncio.sleep(0.1)
        held_at = utterance.position
        await asyncio.sleep(0.4)
        assert utterance.position == held_at
        ours.unduck()
        spoken = await utterance.spoken()
    assert spoken.heard == TEXT
    assert not spoken.interrupted
    assert spoken.position > held_at
    assert spoken.record.starvations == 0


async def test_words_heard_are_exact_when_a_duck_ends_in_an_interruption() -> None:
    async with (
        running_server(RecordingEngine(), host="127.0.0.1", port=0) as server,
        phone(server.url) as agent,
        phone(server.url) as caller,
        connected(agent, caller) as (ours, theirs),
    ):
        ear = Ear(theirs)
        utterance = ours.speak(TEXT)
        await ear.sound(1.0)
        ours.duck()
        await ear.sound(1.2)
        ours.interrupt()
        spoken = await utterance.spoken()
        assert spoken.interrupted
        assert TEXT.startswith(spoken.heard.rstrip())
        sent = ours.sent_audio()
        assert await ours.play(tone(0.5), 8000)
        assert max(map(level, sent.take())) > 75  # full level: 76 dB


@pytest.mark.usefixtures("need_baresip")
async def test_baresip_hears_12_db_less(tmp_path: Path) -> None:
    async with (
        running_server(RecordingEngine(), host="127.0.0.1", port=0) as server,
        Phone(PhoneSettings(server_url=server.url)) as ours,
        baresip(tmp_path / "peer") as bob,
    ):
        call = await ours.dial(bob.uri)
        await call.answered()
        playing = asyncio.create_task(call.play(tone(3.0), 8000))
        await asyncio.sleep(1.0)
        assert call.duck() == "duck"
        await asyncio.sleep(1.0)
        call.unduck()
        assert await playing
        await call.hangup()
        await bob.event("CALL_CLOSED")
        heard = bob.recording("dec").astype(float)
    pieces = heard[: len(heard) // 160 * 160].reshape(-1, 160)
    levels = 10 * np.log10(np.mean(pieces**2, axis=1) + 1)
    full = np.median(levels[levels > np.max(levels) - 3])
    low = levels[np.abs(full - 12 - levels) < 1]
    between = levels[(levels < full - 1) & (levels > full - 11)]
    assert len(low) > 35  # a second, less what the machine was late
    # Two steps, each of which may lie in two frames of its recording, and the two ends.
    assert len(between) <= 6, between


@pytest.mark.parametrize(
    ("line", "mode", "lead_s"),
    [("audiosocket", "duck", 0.0), ("twilio", "duck", 0.24), ("webrtc", "hold", 0.0)],
)
async def test_every_other_line_lowers_or_pauses(line: str, mode: str, lead_s: float) -> None:
    engine = RecordingEngine()
    async with (
        running_server(engine, host="127.0.0.1", port=0) as server,
        over(line, server.url) as (call, _),
    ):
        await call.answer()
        sent = call.sent_audio()
        playing = asyncio.create_task(call.play(tone(2.0), 8000))
        frames: list[SentFrame] = []
        async with asyncio.timeout(10):
            while len(frames) < 25:
                await asyncio.sleep(0.02)
                frames += sent.take()
        ducked_at = call.clock.now()
        assert call.duck() == mode
        await asyncio.sleep(0.6)
        frames += sent.take()
        up_at = call.clock.now()
        call.unduck()
        assert await playing
        frames += sent.take()
        await call.hangup()
    full = max(map(level, frames))
    # What a queue at the far end has is played out first.
    between = [each for each in frames if ducked_at + lead_s + 0.03 < each.at < up_at]
    if mode == "duck":
        assert len(between) > 10
        assert all(full - level(each) == pytest.approx(12, abs=1) for each in between)
    else:
        assert between == []
    after = [level(each) for each in frames[:-1] if each.at > up_at + lead_s + 0.03]
    assert all(each == pytest.approx(full, abs=1.5) for each in after)
    assert sum(each.duration_s for each in frames) == pytest.approx(2.0, abs=0.05)
