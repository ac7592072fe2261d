"""Pipecat's serializers beside ours, and as the carrier at the other end of a real WebSocket."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwen3tts_codecs.g711 import encode_ulaw
from qwen3tts_codecs.pcm import from_bytes
from qwen3tts_phone.streams.call import StreamCall
from qwen3tts_phone.streams.server import Streams
from qwen3tts_phone.streams.settings import StreamSettings
from qwen3tts_speech.link import SpeechLink
from tests.clients.conftest import Client
from tests.streams.carrier_fixtures import FOLDER, script, shown, started

pytestmark = pytest.mark.network

LINES = ("twilio", "telnyx", "plivo", "exotel", "vonage")


def messages_of(line: str) -> list[str]:
    """The carrier's texts that hold sound or keys."""
    return [
        step["from"]
        for step in script(line)["steps"]
        if any("audio" in each or "key" in each for each in step.get("events", ()))
        and "from" in step
    ]


def stream_id(line: str) -> str:
    return next(
        str(each["started"]["stream_id"])
        for step in script(line)["steps"]
        for each in step.get("events", ())
        if "started" in each
    )


async def test_ours_writes_what_pipecat_writes_and_reads_what_it_reads(
    client: Client, tmp_path: Path
) -> None:
    given = tmp_path / "given.json"
    lines = {line: {"stream_id": stream_id(line), "messages": messages_of(line)} for line in LINES}
    given.write_text(json.dumps(lines), encoding="utf-8")
    theirs = await client("pipecat_carriers.py", "formats", str(given))
    for line in LINES:
        adapter, pcm = started(line), from_bytes(base64.b64decode(theirs[line]["pcm"]))
        (clear,) = adapter.clear()
        assert json.loads(clear) == json.loads(theirs[line]["clear"]), line
        if line == "vonage":
            (sound,) = adapter.audio(adapter.payload.encode(pcm))
            assert sound == base64.b64decode(theirs[line]["media"])
            continue
        media = json.loads(theirs[line]["media"])
        payload = base64.b64decode(media["media"]["payload"])
        if adapter.payload.name == "PCMU":
            # Where two codes are as near, theirs takes the other one.
            away = np.abs(np.frombuffer(payload, np.uint8).astype(int) - _codes(pcm))
            assert away.max() <= 1
        (ours,) = [*adapter.audio(payload), *adapter.flush(), *adapter.flush()]
        assert json.loads(ours) == media, line
    # What the carrier sends.
    for line in LINES:
        adapter = started(line)
        for message, read in zip(messages_of(line), theirs[line]["read"], strict=True):
            for event in map(shown, adapter.receive(message, 0.0)):
                if "key" in event:
                    assert event["key"] == read["key"]
                elif "audio" in event and line != "telnyx":  # its chunks come out of order here
                    data = base64.b64decode(event["audio"])
                    samples = adapter.payload_in.decode(data)
                    assert np.array_equal(samples, from_bytes(base64.b64decode(read["pcm"])))


def _codes(pcm: Any) -> Any:
    return np.frombuffer(encode_ulaw(pcm), np.uint8).astype(int)


class Agent:
    """Plays a tone, is interrupted, and plays a short one again."""

    def __init__(self, streams: Streams) -> None:
        self.heard_s = 0.0
        self.peak = 0
        self._enough = asyncio.Event()
        self._all = asyncio.Event()
        self._task = asyncio.create_task(self._serve(streams))

    async def _serve(self, streams: Streams) -> None:
        async for call in streams:
            listening = asyncio.create_task(self._listen(call))
            await call.answer()
            long = asyncio.create_task(call.play(tone(5.0), 8000))
            await self._enough.wait()
            call.interrupt()
            assert not await long
            assert await call.play(tone(0.4), 8000)
            await self._all.wait()
            await call.hangup()
            await listening
            return

    async def _listen(self, call: StreamCall) -> None:
        async for frame in call.audio:
            self.heard_s += frame.duration_s
            self.peak = max(self.peak, int(np.abs(frame.samples.astype(int)).max(initial=0)))
            if self.heard_s >= 1.0:
                self._enough.set()
            if self.heard_s >= 2.9:
                self._all.set()

    async def over(self) -> None:
        async with asyncio.timeout(40):
            await self._task


def tone(seconds: float) -> Any:
    at = np.arange(round(8000 * seconds)) / 8000
    return (8000 * np.sin(2 * np.pi * 400 * at)).astype(np.int16)


@pytest.mark.parametrize("line", LINES)
async def test_a_call_with_pipecats_serializer_at_the_carriers_end(
    client: Client, line: str
) -> None:
    settings = StreamSettings(kinds=(line,), server_url="ws://127.0.0.1:1/v1/speech", insecure=True)
    link = SpeechLink("ws://127.0.0.1:1/v1/speech")
    async with Streams(settings, link=link) as streams:
        agent = Agent(streams)
        url = f"ws://127.0.0.1:{streams.port}/{line}"
        got = await client("pipecat_carriers.py", "call", line, url, str(FOLDER / f"{line}.json"))
        await agent.over()
    await link.close()
    assert agent.heard_s == pytest.approx(3.0, abs=0.11)
    assert 7000 < agent.peak < 9000
    assert got["clears"] == 1
    assert got["unread"] == 0
    assert got["marks"] > 5
    # Of the first tone what was sent until the interruption, of the second all.
    assert 0.4 <= got["after_clear_s"] <= 0.5
    assert got["seconds"] > 0.6
    assert 7000 < got["peak"] < 9000
    assert got["crossings"] == pytest.approx(400 * got["seconds"], rel=0.1)
