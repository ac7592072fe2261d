"""A real baresip behind the same Kamailio as our phone: calls both ways, and both are heard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_phone.call.call import Call
from qwen3tts_phone.phone import Account, Phone, PhoneSettings
from qwen3tts_server.run import running_server
from tests.audio import aligned, compare, reference_8k
from tests.peers.baresip_runner import Baresip, baresip, tone
from tests.peers.kamailio_runner import PASSWORDS, Kamailio, kamailio
from tests.peers.recording_engine import RecordingEngine

pytestmark = [
    pytest.mark.network,
    pytest.mark.usefixtures("need_kamailio", "need_baresip"),
]

SENTENCE = "Good morning, this is the clinic. Your appointment is on Friday, at half past eight."
TONE_HZ = 523.0


@asynccontextmanager
async def both(folder: Path) -> AsyncIterator[tuple[RecordingEngine, Kamailio, Phone, Baresip]]:
    """Our phone is alice, baresip is bob; the server asks for passwords inside calls, too."""
    engine = RecordingEngine()
    async with (
        kamailio(folder / "kamailio", challenges_inside=True) as server,
        running_server(engine, host="127.0.0.1", port=0) as speech,
    ):
        ours = Account(server.registrar, "alice", PASSWORDS["alice"])
        line = (
            f"<sip:bob@127.0.0.1:{server.port}>;auth_user=bob;auth_pass={PASSWORDS['bob']}"
            ";regint=60"
        )
        async with (
            Phone(PhoneSettings(server_url=speech.url, account=ours)) as phone,
            baresip(folder / "peer", speech=tone(TONE_HZ, 20.0), account=line) as peer,
        ):
            await server.registered("bob")
            yield engine, server, phone, peer


async def loudest_hz(call: Call) -> float:
    """The frequency that is loudest in the first seconds of what the caller says."""
    heard: list[NDArray[np.int16]] = []
    async with asyncio.timeout(15):
        async for frame in call.audio():
            heard.append(frame.samples)
            if sum(map(len, heard)) >= 16000:
                break
    spectrum = np.abs(np.fft.rfft(np.concatenate(heard)[8000:16000].astype(float)))
    return float(spectrum.argmax())


async def test_we_call_baresip_through_the_proxy(tmp_path: Path) -> None:
    async with both(tmp_path) as (engine, server, phone, peer):
        call = await phone.dial(f"sip:bob@127.0.0.1:{server.port}")
        await call.answered()
        listening = asyncio.create_task(loudest_hz(call))
        spoken = await call.say(SENTENCE)
        assert spoken.heard.strip() == SENTENCE
        assert await listening == TONE_HZ
        await call.hangup()
        await peer.event("CALL_CLOSED")
        reference = reference_8k(engine.pcm())
        assert compare(reference, aligned(reference, peer.recording("dec"))).missing <= 2


async def test_baresip_calls_us_through_the_proxy_and_hangs_up(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, server, phone, peer):
        await peer.dial(f"sip:alice@127.0.0.1:{server.port}")
        async with asyncio.timeout(10):
            call = await anext(phone.incoming())
        await call.answer()
        listening = asyncio.create_task(loudest_hz(call))
        spoken = await call.say(SENTENCE)
        assert spoken.heard.strip() == SENTENCE
        assert await listening == TONE_HZ
        await peer.hangup()
        assert await call.ended() == "the other side hung up"
