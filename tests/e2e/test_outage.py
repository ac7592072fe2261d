"""Callers while the speech server is gone: 503 with Retry-After, or an announcement."""

from __future__ import annotations

import asyncio
import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwen3tts_agent.agent import Agent
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone.errors import CallRefused
from qwen3tts_phone.phone import Phone, PhoneSettings
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_server.run import running_server
from qwen3tts_speech.link import SpeechLink
from tests.agent.endpoint import ChatEndpoint
from tests.e2e.parties import Ear
from tests.e2e.test_call_features import silent

pytestmark = pytest.mark.network


async def without_server(**settings: Any) -> Phone:
    """A phone whose link knows that its server is gone."""
    async with running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server:
        link = SpeechLink(server.url)
        await link.warm()
    return Phone(PhoneSettings(server_url=server.url, **settings), link=link)


def wav(path: Path, seconds: float = 0.4, rate_hz: int = 16000, channels: int = 1) -> Path:
    times = np.arange(int(seconds * rate_hz)) / rate_hz
    tone = np.repeat((8000 * np.sin(2 * np.pi * 440 * times)).astype("<i2"), channels)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes(tone.tobytes())
    return path


async def test_a_caller_is_refused_with_503_and_told_when_to_come_again() -> None:
    async with await without_server() as phone, silent() as caller:
        taking = asyncio.ensure_future(anext(aiter(phone)))
        call = await caller.dial(phone.uri)
        with pytest.raises(CallRefused) as refused:
            await call.answered()
        assert refused.value.status == 503
        assert call.sip.ended is not None
        assert call.sip.ended.headers["Retry-After"] == "10"
        assert not phone.calls
        taking.cancel()
        await phone.link.close()


async def test_an_agents_callers_are_refused_as_well_and_taken_when_the_server_is_back() -> None:
    phone = await without_server()
    port = int(str(phone.settings.server_url).rsplit(":", 1)[1].partition("/")[0])
    async with (
        phone,
        silent() as caller,
        ChatEndpoint() as endpoint,
        Agent(endpoint.url, stt=None, greeting="Good morning.") as agent,
    ):
        serving = asyncio.create_task(agent.serve(phone))
        call = await caller.dial(phone.uri)
        with pytest.raises(CallRefused):
            await call.answered()
        assert phone.link.connections[0].failed_at is not None
        phone.link.connections[0].failed_at = -1e9
        async with running_server(EmbeddedEngine(), host="127.0.0.1", port=port):
            call = await caller.dial(phone.uri)
            await call.answered()
            await Ear(call).sound(0.2)
            await call.hangup()
        await phone.drain()
        await serving
        await phone.link.close()


@pytest.mark.parametrize("channels", [1, 2])
async def test_a_file_is_played_and_the_call_ends(tmp_path: Path, channels: int) -> None:
    records = RecordSettings(log=tmp_path / "calls.jsonl")
    file = wav(tmp_path / "sorry.wav", channels=channels)
    async with (
        await without_server(unavailable_file=file, records=records) as phone,
        silent() as caller,
    ):
        taking = asyncio.ensure_future(anext(aiter(phone)))
        call = await caller.dial(phone.uri)
        await call.answered()
        ear = Ear(call)
        async with asyncio.timeout(10):
            assert await call.ended() == "the other side hung up"
        heard = await ear.heard()
        assert np.abs(heard.astype(int)).max() > 4000
        assert not taking.done()
        taking.cancel()
        await asyncio.gather(*(each.ended() for each in phone.calls))
        await phone.link.close()
    (line,) = (tmp_path / "calls.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line)["end"]["error"] == "connection_lost"


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda path: path, "cannot be read"),
        (lambda path: path.write_bytes(b"RIFFnonsense") and path, "cannot be read"),
        (lambda path: wav(path, 0.0), "samples"),
        (lambda path: wav(path, rate_hz=4000), "4000 Hz"),
        (lambda path: wav(path, channels=3), "3 channels"),
    ],
)
def test_a_file_that_cannot_be_played_is_refused_with_its_setting(
    tmp_path: Path, make: Any, match: str
) -> None:
    with pytest.raises(ValueError, match=f"^unavailable_file=.*{match}"):
        PhoneSettings(unavailable_file=make(tmp_path / "sorry.wav"))
