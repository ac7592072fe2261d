"""A call that a test plays: frames, keys, an agent that speaks, and a recogniser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from qwen3tts_phone.audio.frames import HeardFrame, KeyPressed, OutboundAudio, SentAudio
from qwen3tts_phone.detection.recogniser import PartialCallback, Transcript
from qwen3tts_phone.facts import CallFacts
from qwen3tts_speech.line import Saying
from qwen3tts_speech.sink import DuckMode
from qwen3tts_speech.utterance import Utterance
from tests.fakes import FakeClock, settle

_Item = TypeVar("_Item")
LOUD = np.where(np.arange(160) % 2, 6000, -6000).astype(np.int16)
QUIET = np.zeros(160, np.int16)


class LoudDetector:
    """What is loud is speech: 10 ms a piece."""

    window = 80

    def push(self, samples: NDArray[np.int16]) -> list[float]:
        return [float(np.abs(samples).max() > 1000)]

    def reset(self) -> None:
        pass


class FakeCall:
    """What `Listening` needs of a call."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.facts = CallFacts()
        self.speaking = False
        self.interruptions: list[float] = []
        self.ducks: list[tuple[float, float]] = []
        """Times and attenuations, dB."""
        self.said: Saying | None = Saying("It is ", "one thing. And another one, too.", True)
        """What the agent is saying."""
        self.utterance = cast(Utterance, object())
        self._frames: asyncio.Queue[HeardFrame | None] = asyncio.Queue()
        self._keys: asyncio.Queue[KeyPressed | None] = asyncio.Queue()
        self._timestamp = 0

    @property
    def audio(self) -> Callable[[], AsyncIterator[HeardFrame]]:
        return lambda: _all(self._frames)

    @property
    def dtmf(self) -> Callable[[], AsyncIterator[KeyPressed]]:
        return lambda: _all(self._keys)

    def duck(self, db: float = 12.0) -> DuckMode:
        self.ducks.append((self.clock.now(), db))
        return "duck"

    def saying(self) -> Saying | None:
        return self.said

    def unduck(self) -> None:
        self.ducks.append((self.clock.now(), 0.0))

    def interrupt(self) -> list[Utterance]:
        self.interruptions.append(self.clock.now())
        was, self.speaking = self.speaking, False
        return [self.utterance] if was else []

    def sent_audio(self) -> SentAudio:
        return SentAudio(OutboundAudio())

    # --- what the test plays

    async def say(self, seconds: float, *, loud: bool = True) -> None:
        """Feed loud, or quiet, audio of this length."""
        for _ in range(round(seconds * 50)):
            await self.hear(LOUD if loud else QUIET)

    async def hear(self, samples: NDArray[np.int16]) -> None:
        """Feed a frame of 20 ms."""
        await self.clock.advance(0.02)
        self._frames.put_nowait(HeardFrame(samples, self.clock.now(), False, 8000, self._timestamp))
        self._timestamp += 160
        await settle()

    async def rest(self, seconds: float) -> None:
        """Feed quiet audio of this length."""
        await self.say(seconds, loud=False)

    async def press(self, keys: str) -> None:
        """The caller presses keys, 0.2 s apart."""
        for key in keys:
            await self.clock.advance(0.2)
            self._keys.put_nowait(KeyPressed(self.clock.now(), key, 100))
            await settle()

    async def hang_up(self) -> None:
        """The call is over."""
        self._frames.put_nowait(None)
        self._keys.put_nowait(None)
        await settle()


class FakeRecogniser:
    """Gives the texts that it was made with; what happens is written down."""

    rate_hz = 16000

    def __init__(self, *texts: str | Exception) -> None:
        self.texts = list(texts)
        self.language = "en"
        self.told: list[str] = []
        self.pushed = 0
        self.gate = asyncio.Event()
        """Set when the texts may come."""
        self.gate.set()
        self.on_partial: PartialCallback | None = None
        self.refuses: Exception | None = None

    async def warm(self) -> None:
        pass

    async def open(self, on_partial: PartialCallback | None = None) -> FakeRecogniser:
        if self.refuses is not None:
            raise self.refuses
        self.on_partial = on_partial
        return self

    def push(self, samples: NDArray[np.int16], at: float) -> None:
        self.pushed += len(samples)

    def begin_turn(self, at: float) -> None:
        self.told.append("begin")

    def pause(self, at: float) -> None:
        self.told.append("pause")

    def resume(self) -> None:
        self.told.append("resume")

    def drop_turn(self) -> None:
        self.told.append("drop")

    async def end_turn(self, at: float) -> Transcript:
        self.told.append("end")
        text = self.texts.pop(0) if self.texts else ""
        await self.gate.wait()
        if isinstance(text, Exception):
            raise text
        return Transcript(text, self.language, 0.9)

    async def close(self) -> None:
        self.told.append("close")


async def _all(queue: asyncio.Queue[_Item | None]) -> AsyncIterator[_Item]:
    while (item := await queue.get()) is not None:
        yield item
