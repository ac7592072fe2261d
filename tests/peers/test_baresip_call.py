"""Whole calls with a real baresip: it hears us, we hear it, keys both ways."""

from __future__ import annotations

import asyncio
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_codecs.g711 import decode_ulaw, encode_ulaw
from qwen3tts_pacer.clock import LoopClock
from qwen3tts_phone.audio.frames import KeyPressed
from qwen3tts_phone.call.call import Call
from qwen3tts_phone.call.events import CallAnswered, CallEnded
from qwen3tts_phone.call.text_sources import scripted
from qwen3tts_phone.phone import Phone, PhoneSettings
from qwen3tts_server.run import running_server
from tests.audio import aligned, compare, lag_of, quality, reference_8k
from tests.peers.baresip_runner import Baresip, baresip, tone
from tests.peers.recording_engine import RecordingEngine

pytestmark = [pytest.mark.network, pytest.mark.usefixtures("need_baresip")]

SENTENCE = (
    "Good morning, this is the clinic. Your appointment is on Friday at 8:30, with Dr. Lee. "
    "Please bring your card; if you cannot come, call us one day before."
)


@asynccontextmanager
async def line(folder: Path) -> AsyncIterator[tuple[RecordingEngine, Phone]]:
    """A server with the embedded voice, and a phone that speaks with it."""
    engine = RecordingEngine()
    async with running_server(engine, host="127.0.0.1", port=0) as server:
        settings = PhoneSettings(
            server_url=server.url,
            record_path=folder / "call.wav",
            latency_log=folder / "latency.jsonl",
        )
        async with Phone(settings) as phone:
            yield engine, phone


async def keys(call: Call, count: int) -> str:
    """The next keys that the far end presses."""
    pressed = ""
    async with asyncio.timeout(10):
        async for event in call.events:
            if isinstance(event, KeyPressed):
                pressed += event.digit
                if len(pressed) == count:
                    break
    return pressed


async def heard_keys(peer: Baresip, count: int) -> str:
    """The keys that baresip says it has heard."""
    await peer.event("CALL_DTMF_START", seen=count - 1)
    events = [event for event in peer.events if event.get("type") == "CALL_DTMF_START"]
    return "".join(str(event["param"]) for event in events)


def stereo(path: Path) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
    """Caller and agent of our own recording, each shape [n]."""
    with wave.open(str(path), "rb") as file:
        assert (file.getnchannels(), file.getframerate()) == (2, 8000)
        both = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2").reshape(-1, 2)
    return both[:, 0].copy(), both[:, 1].copy()


CALLS_AT_MOST = 3
"""A machine that stalls for 20 ms leaves a hole in a call, ours or the peer's; a fault of the line
is there in every call."""


async def one_call(folder: Path) -> list[str]:
    """Say the sentence to baresip; what is wrong with its recording of it."""
    async with line(folder) as (engine, phone), baresip(folder / "peer") as peer:
        call = await phone.dial(peer.uri)
        await call.answered()
        spoken = await call.say(scripted(SENTENCE, LoopClock(), ms_per_token=20))
        await call.hangup()
        await peer.event("CALL_CLOSED")
    assert spoken.heard.strip() == SENTENCE
    assert not spoken.remaining.strip()
    caller, agent = stereo(folder / "call.wav")
    assert np.abs(caller.astype(int)).max() > 4000, "baresip's tone is on the caller's track"

    reference = reference_8k(engine.pcm())
    best = quality(reference, decode_ulaw(encode_ulaw(reference)))
    heard = aligned(reference, peer.recording("dec"))
    reached, found = quality(reference, heard), compare(reference, heard)
    assert found.frames > 200
    faults = {
        f"PESQ {reached:.3f}, bare mu-law {best:.3f}": reached < best - 0.03,
        f"{found.missing} frames missing": found.missing > 0,
        f"joints step {found.joint_step:.2f} times the rest": found.joint_step >= 1.3,
        "our own recording has a hole": compare(reference, aligned(reference, agent)).missing > 0,
    }
    return [fault for fault, there in faults.items() if there]


async def test_what_baresip_recorded_is_the_sentence(tmp_path: Path) -> None:
    seen = []
    for number in range(CALLS_AT_MOST):
        folder = tmp_path / str(number)
        folder.mkdir()
        faults = await one_call(folder)
        if not faults:
            return
        seen.append(faults)
    pytest.fail(f"every call had faults: {seen}")


async def test_baresip_calls_us_and_both_hear_each_other(tmp_path: Path) -> None:
    said = tone(523.0, 20.0)
    async with line(tmp_path) as (engine, phone), baresip(tmp_path / "peer", speech=said) as peer:
        await peer.dial(phone.uri)
        async with asyncio.timeout(10):
            call = await anext(phone.incoming())
        assert call.direction == "in"
        await call.answer()
        heard: list[NDArray[np.int16]] = []

        async def listen() -> None:
            async for frame in call.audio():
                heard.append(frame.samples)

        listening = asyncio.create_task(listen())
        spoken = await call.say(SENTENCE)
        await peer.hangup()
        assert await call.ended() == "the other side hung up"
        await listening
    assert spoken.heard.strip() == SENTENCE
    reference = reference_8k(engine.pcm())
    assert compare(reference, aligned(reference, peer.recording("dec"))).missing == 0
    caller = np.concatenate(heard)
    spectrum = np.abs(np.fft.rfft(caller[8000:16000].astype(float)))
    assert int(spectrum.argmax()) == 523
    assert lag_of(said[:4000], caller) >= 0
    kinds = [type(event) async for event in call.events]
    assert kinds[0] is CallAnswered
    assert kinds[-1] is CallEnded


async def test_keys_go_both_ways(tmp_path: Path) -> None:
    async with line(tmp_path) as (_, phone), baresip(tmp_path / "peer") as peer:
        call = await phone.dial(peer.uri)
        await call.answered()
        await call.send_dtmf("159#")
        assert await heard_keys(peer, 4) == "159#"
        pressing = asyncio.create_task(peer.press("42*"))
        assert await keys(call, 3) == "42*"
        await pressing
        await call.hangup()
