"""Calls over Asterisk's media streams with a real speech server: heard words and cutting in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest

from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.streams import StreamCall, Streams
from tests.e2e.parties import ServerProcess, server_process
from tests.streams.asterisk_side import AudioSocketSide, MediaSide, audiosocket, media

pytestmark = pytest.mark.network

LONG = (
    "This is a long story about a ship, a captain and a very old map, and it goes on and on, "
    "through storms and calms, until the very last island of the very last sea has been seen."
)
FRAME_BYTES = 960
KIND_24 = 0x13


@pytest.fixture
async def server() -> AsyncIterator[ServerProcess]:
    async with server_process() as server:
        yield server


class Caller:
    """One far end, whichever protocol it speaks, at 24 kHz."""

    def __init__(self, side: AudioSocketSide | MediaSide) -> None:
        self.side = side

    async def begin(self) -> None:
        if isinstance(self.side, MediaSide):
            await self.side.start()
        else:
            self.side.start()
        await self.sends(bytes(FRAME_BYTES))

    async def sends(self, frame: bytes) -> None:
        if isinstance(self.side, MediaSide):
            await self.side.connection.send(frame)
        else:
            self.side.send(KIND_24, frame)

    async def speaks(self, pcm: bytes) -> None:
        """In real time, as a telephone does."""
        loop = asyncio.get_running_loop()
        origin = loop.time()
        for number, at in enumerate(range(0, len(pcm) - FRAME_BYTES, FRAME_BYTES)):
            await asyncio.sleep(max(0.0, origin + number * 0.02 - loop.time()))
            await self.sends(pcm[at : at + FRAME_BYTES])

    @property
    def speech(self) -> bytes:
        """What it has heard, without the silence before and behind."""
        samples = np.frombuffer(bytes(self.side.heard), "<i2")
        loud = np.flatnonzero(np.abs(samples.astype(int)) > 300)
        return samples[loud[0] : loud[-1]].tobytes() if len(loud) else b""


@asynccontextmanager
async def called(line: str, server: ServerProcess) -> AsyncIterator[tuple[StreamCall, Caller]]:
    async with Streams(kinds=(line,), server_url=server.url) as streams:
        far = (
            audiosocket(streams.audiosocket_port)
            if line == "audiosocket"
            else media(streams.port, encoding="slin24", size=FRAME_BYTES)
        )
        async with far as side:
            caller = Caller(side)
            await caller.begin()
            async with asyncio.timeout(20):
                call = await anext(streams.incoming())
                await call.answer()
            yield call, caller
            await call.hangup()


@pytest.mark.parametrize("line", ["audiosocket", "asterisk"])
async def test_what_is_said_is_heard_to_its_last_word(line: str, server: ServerProcess) -> None:
    async with called(line, server) as (call, caller):
        spoken = await call.say("Good morning, this is the agent.")
        assert spoken.heard == "Good morning, this is the agent."
        assert len(caller.speech) > 24_000 * 2
    assert call.detail_record is not None
    assert call.detail_record.values["findings"] == []


@pytest.mark.parametrize("line", ["audiosocket", "asterisk"])
async def test_a_caller_who_cuts_in_silences_the_agent_and_leaves_the_words_heard(
    line: str, server: ServerProcess
) -> None:
    async with called(line, server) as (call, caller):
        await call.say("Please stop now, I have got a question for you.")
        question = caller.speech
        turns = call.hear(ListenSettings())
        utterance = call.speak(LONG)
        before = len(caller.side.heard)
        await caller.side.until(lambda: len(caller.side.heard) > before + 100 * FRAME_BYTES)
        next_turn = asyncio.ensure_future(anext(aiter(turns)))
        speaking = asyncio.create_task(caller.speaks(question + bytes(80 * FRAME_BYTES)))
        async with asyncio.timeout(20):
            turn = await next_turn
        await speaking
        spoken = await utterance.spoken()
        assert turn.barge_in
        assert turn.interrupted == (utterance,)
        assert spoken.interrupted
        assert LONG.startswith(spoken.heard.rstrip())
        assert spoken.heard + spoken.remaining == LONG
        assert 3 < len(spoken.heard.split()) < len(LONG.split())
        await turns.aclose()
