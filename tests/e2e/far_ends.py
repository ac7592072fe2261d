"""The other end of one call, on several lines: it talks, presses keys, and ends with the call."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from qwen3tts_codecs import PCMU
from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_pacer.clock import LoopClock
from qwen3tts_phone import PhoneCall
from tests.e2e.parties import at_8k
from tests.streams.asterisk_side import AudioSocketSide
from tests.streams.carrier_side import CarrierSide

Samples = NDArray[np.int16]
FRAME = 160
"""Samples of 20 ms at 8 kHz."""


async def speech(engine: EmbeddedEngine, text: str) -> Samples:
    """The engine's voice, shape [n] at 8 kHz."""
    pcm = [chunk.pcm async for chunk in engine.synthesize(SynthesisRequest(text))]
    return at_8k([np.frombuffer(b"".join(pcm), "<i2")], 24_000)


class FarEnd(Protocol):
    """Whoever is at the other end."""

    async def say(self, samples: Samples) -> None:
        """Talk, in real time."""

    async def press(self, keys: str) -> None:
        """Press keys."""

    async def over(self) -> None:
        """The call has ended."""


class SipFar:
    """Another phone of ours."""

    def __init__(self, call: PhoneCall) -> None:
        self.call = call

    async def say(self, samples: Samples) -> None:
        await self.call.play(samples, 8000)

    async def press(self, keys: str) -> None:
        await self.call.send_dtmf(keys, duration_ms=60, gap_ms=40)

    async def over(self) -> None:
        await self.call.ended()


class Talker(ABC):
    """Sends a frame each 20 ms, silence where there is nothing to say, as a PBX does."""

    def __init__(self) -> None:
        self._frames: deque[Samples] = deque()
        self._said = asyncio.Event()
        self._task = asyncio.create_task(self._talk())

    async def say(self, samples: Samples) -> None:
        self._said.clear()
        whole = samples[: len(samples) // FRAME * FRAME]
        self._frames.extend(whole.reshape(-1, FRAME))
        await self._said.wait()

    @abstractmethod
    async def send(self, samples: Samples) -> None:
        """One frame."""

    async def _talk(self) -> None:
        clock = LoopClock()
        origin, count = clock.now(), 0
        while True:
            await clock.sleep_until(origin + count * 0.02)
            count += 1
            if not self._frames:
                self._said.set()
            await self.send(self._frames.popleft() if self._frames else np.zeros(FRAME, np.int16))

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class AudioSocketFar(Talker):
    """Asterisk's ``AudioSocket()``."""

    def __init__(self, side: AudioSocketSide) -> None:
        super().__init__()
        self._side = side
        side.start()

    async def send(self, samples: Samples) -> None:
        self._side.send(0x10, samples.astype("<i2").tobytes())

    async def press(self, keys: str) -> None:
        for key in keys:
            self._side.send(0x03, key.encode())

    async def over(self) -> None:
        await self._side.until(self._side.closed.is_set)


class TwilioFar(Talker):
    """A carrier that plays what comes in real time, and says when it has."""

    def __init__(self, connection: ClientConnection) -> None:
        super().__init__()
        self._connection = connection
        self._clock = LoopClock()
        self._carrier = CarrierSide("twilio")
        self._number = 0
        self._begun = False
        self._reading = asyncio.create_task(self._read())

    async def send(self, samples: Samples) -> None:
        if not self._begun:
            self._begun = True
            for message in self._carrier.begin():
                await self._connection.send(message)
        self._number += 1
        await self._connection.send(self._carrier.says(PCMU.encode(samples), self._number))
        for answer in self._carrier.answers(self._clock.now()):
            await self._connection.send(answer)

    async def press(self, keys: str) -> None:
        for key in keys:
            told = {"event": "dtmf", "streamSid": "x", "dtmf": {"track": "inbound", "digit": key}}
            await self._connection.send(json.dumps(told))

    async def over(self) -> None:
        await self._reading

    async def _read(self) -> None:
        try:
            async for message in self._connection:
                self._carrier.take(message, self._clock.now())
        except ConnectionClosed:
            return


@asynccontextmanager
async def audiosocket_far(port: int) -> AsyncIterator[FarEnd]:
    side = AudioSocketSide(*await asyncio.open_connection("127.0.0.1", port))
    far = AudioSocketFar(side)
    try:
        yield far
    finally:
        await far.close()
        await side.close()


@asynccontextmanager
async def twilio_far(port: int) -> AsyncIterator[FarEnd]:
    async with connect(f"ws://127.0.0.1:{port}/twilio") as connection:
        far = TwilioFar(connection)
        try:
            yield far
        finally:
            await far.close()
