"""A speech connection and a sink that do what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qwen3tts_pacer.gain import tenths
from qwen3tts_pacer.slot import Frame
from qwen3tts_speech.sink import DuckMode, Interruption, Played
from qwen3tts_wire.errors import ConnectionLost, SpeechError
from qwen3tts_wire.events import Audio, Cancelled, Done, Event, Started
from qwen3tts_wire.formats import AudioFormat
from qwen3tts_wire.heard import Heard, Word, heard
from qwen3tts_wire.messages import Limits

SAMPLE = (1000).to_bytes(2, "little")


class FakeContext:
    """Takes text, gives the events that the test puts in."""

    def __init__(self) -> None:
        self.text = ""
        self.ended = False
        self.words: list[Word] = []
        self.cancelled_at: list[int | None] = []
        self.reports: list[int] = []
        self.states: list[str] = []
        self.error: SpeechError | None = None
        self.revoice: Any = None
        self._events: asyncio.Queue[Event | SpeechError | None] = asyncio.Queue()

    # what a test does

    def start(self) -> None:
        self._events.put_nowait(
            Started("clause", AudioFormat("pcm_s16le", 24000), "voice", "en", (), {})
        )

    def sound(self, ms: int) -> None:
        self._events.put_nowait(Audio(SAMPLE * (24 * ms), 0, 0.0))

    def done(self, marks: Mapping[str, float] | None = None, reason: str = "text_end") -> None:
        self._events.put_nowait(Done(0, 0, 0, reason, marks or {}))
        self._events.put_nowait(None)

    def fail(self, error: SpeechError) -> None:
        self.error = error
        self._events.put_nowait(error)

    # what the line does

    async def append(self, text: str) -> None:
        if self.error is not None:
            raise self.error
        self.text += text

    async def end(self) -> None:
        self.ended = True

    async def report(self, played: int, state: str = "playing") -> None:
        self.reports.append(played)
        self.states.append(state)

    def heard(self, position: int) -> Heard:
        return heard(self.text, self.words, position)

    def cancel(self, played: int | None = None) -> asyncio.Future[Cancelled]:
        self.cancelled_at.append(played)
        answer: asyncio.Future[Cancelled] = asyncio.get_running_loop().create_future()
        answer.set_result(Cancelled(0, 0, "", "", marks={}))
        return answer

    def __aiter__(self) -> FakeContext:
        return self

    async def __anext__(self) -> Event:
        event = await self._events.get()
        if isinstance(event, SpeechError):
            raise event
        if event is None:
            raise StopAsyncIteration
        return event


@dataclass
class _Session:
    engine: str = "fake"
    limits: Limits = field(default_factory=Limits)


class FakeClient:
    """Hands out contexts; ``contexts`` holds them in order."""

    def __init__(self) -> None:
        self.contexts: list[FakeContext] = []
        self.options: list[dict[str, Any]] = []
        self.closed = False
        self.connected = True
        self.idle = True
        self.draining = asyncio.Event()
        self.clock_offset_s = 0.0
        self.rtt_s = 0.001
        self.session = _Session()
        self.elsewhere = False
        """Whether what is under way can go on at another address."""
        self.rerouted: list[FakeContext] = []

    async def open(self, **options: Any) -> FakeContext:
        if self.closed:
            raise ConnectionLost("gone")
        self.options.append(options)
        self.contexts.append(FakeContext())
        return self.contexts[-1]

    def reroute(self, context: FakeContext) -> bool:
        self.rerouted.append(context)
        return self.elsewhere

    async def close(self) -> None:
        self.closed = True


@dataclass
class FakeSink:
    """Plays what it is given only when the test says so."""

    capacity: int = 10_000
    frames: list[Frame] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    played: dict[int, int] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._changed = asyncio.Condition()
        self._waiting = 0
        self._silent = False

    # what a test does

    async def play(self, frames: int) -> None:
        """So many more frames go out."""
        for frame in self.frames[self._gone : self._gone + frames]:
            self.played[frame.context] = frame.end
        self._gone = min(len(self.frames), self._gone + frames)
        async with self._changed:
            self._changed.notify_all()

    async def play_all(self) -> None:
        await self.play(len(self.frames))

    _gone = 0

    # what the line does

    def begin(self, context: int, key: str) -> None:
        self.log.append(f"begin {context}")

    def write(self, frames: Sequence[Frame]) -> int:
        if self._silent:
            return len(frames)
        count = min(len(frames), self.capacity - (len(self.frames) - self._gone))
        self.frames += frames[:count]
        return count

    async def room(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.frames) - self._gone < self.capacity)

    def finish(self, context: int) -> None:
        self.log.append(f"finish {context}")
        self.finished.add(context)

    async def drained(self, context: int) -> Played:
        def gone() -> bool:
            return not any(frame.context == context for frame in self.frames[self._gone :])

        async with self._changed:
            await self._changed.wait_for(gone)
        return Played(self.position(context))

    def position(self, context: int) -> int:
        return self.played.get(context, 0)

    def waiting_s(self, context: int) -> float:
        waiting = self.frames[self._gone :]
        return sum(frame.context == context for frame in waiting) * 0.02

    changes_codec = True

    def resume_at(self, context: int) -> int | None:
        return None

    def duck(self, db: float) -> DuckMode:
        tenths(db)
        self.log.append(f"duck {db:g}")
        return "duck"

    def interrupt(self) -> None:
        self.log.append("interrupt")
        self._silent = True
        self._dropped = self.frames[self._gone :]
        del self.frames[self._gone :]

    async def interrupted(self) -> Interruption:
        contexts = {frame.context for frame in self._dropped} | set(self.played)
        return Interruption(
            0.0, 0.0, {context: Played(self.position(context)) for context in contexts}
        )
