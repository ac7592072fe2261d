"""Far ends of streams for tests: a wire without sockets, and a queue that plays on a fake clock."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from qwen3tts_codecs.g711 import PCMU
from qwen3tts_codecs.payload import Payload
from qwen3tts_phone.streams.carriers.adapter import (
    Message,
    StreamAdapter,
    StreamAudio,
    StreamEvent,
    StreamFlow,
    StreamKey,
    StreamLost,
    StreamMark,
    StreamOddity,
    StreamStarted,
    StreamStopped,
)
from tests.fakes import FakeClock

FRAME_S = 0.02


class PlainAdapter(StreamAdapter):
    """A format of this test's own: sound is bytes, all else a word."""

    line = "plain"
    has_marks = True

    def __init__(self, payload: Payload = PCMU, *, ours: bool = False, marks: bool = True) -> None:
        self._payload = payload
        self.owns_clock = ours
        self.has_marks = marks and not ours
        self.has_clear = not ours

    @property
    def payload(self) -> Payload:
        return self._payload

    def receive(self, message: Message, now: float) -> list[StreamEvent]:
        if isinstance(message, bytes):
            return [StreamAudio(message)]
        word, _, rest = message.partition(" ")
        match word:
            case "start":
                return [StreamStarted(rest or "call-1", from_uri="+15550001", to_uri="+15550002")]
            case "mark":
                return [StreamMark(rest)]
            case "key":
                return [StreamKey(rest)]
            case "flow":
                return [StreamFlow(stop=rest == "stop")]
            case "lost":
                return [StreamLost(float(rest))]
            case "stop":
                return [StreamStopped(rest)]
        return [StreamOddity("an unknown event")]

    def audio(self, payload: bytes) -> Sequence[Message]:
        return (payload,)

    def clear(self) -> Sequence[Message]:
        return () if self.owns_clock else ("clear",)

    def mark(self, name: str) -> Sequence[Message]:
        return (f"mark {name}",)

    def answer(self) -> Sequence[Message]:
        return ("answer",)

    def keys(self, digits: str) -> Sequence[Message]:
        return (f"keys {digits}",)

    def hang_up(self) -> Sequence[Message]:
        return ("hang up",)


class FakeWire:
    """What is sent is kept with its time; what is to come is put in by the test."""

    address: object = None

    def __init__(self, clock: FakeClock) -> None:
        self.peer = "192.0.2.9:4000"
        self.lost = ""
        self.sent: list[tuple[float, Message]] = []
        self.closed_with: int | None = None
        self.taking = asyncio.Event()
        """Cleared while the far end takes nothing."""
        self.taking.set()
        self.closing = asyncio.Event()
        """Cleared while the far end takes no note of our closing."""
        self.closing.set()
        self._clock = clock
        self._coming: asyncio.Queue[Message | None] = asyncio.Queue()

    # what a test does

    def comes(self, *messages: Message) -> None:
        for message in messages:
            self._coming.put_nowait(message)

    def breaks(self, why: str = "") -> None:
        self.lost = why
        self._coming.put_nowait(None)

    @property
    def messages(self) -> list[Message]:
        return [message for _, message in self.sent]

    @property
    def words(self) -> list[str]:
        """All that was sent but for sound and marks."""
        return [
            each for each in self.messages if isinstance(each, str) and not each.startswith("mark")
        ]

    @property
    def sounds(self) -> list[tuple[float, bytes]]:
        return [(at, each) for at, each in self.sent if isinstance(each, bytes)]

    # what the call does

    async def receive(self) -> Message | None:
        if self.closed_with is not None:
            return None
        return await self._coming.get()

    async def send(self, messages: Sequence[Message]) -> None:
        self.send_now(messages)
        await self.taking.wait()

    def send_now(self, messages: Sequence[Message]) -> None:
        if self.closed_with is None:
            self.sent += [(self._clock.now(), each) for each in messages]

    async def close(self, code: int = 1000, reason: str = "") -> None:
        if self.closed_with is None:
            self.closed_with = code
            self._coming.put_nowait(None)
        await self.closing.wait()


class Queueing:
    """A carrier that plays 20 ms frames from a queue by its own clock, and echoes marks.

    Args:
        delay_s: how long a message takes each way.
    """

    def __init__(self, wire: FakeWire, clock: FakeClock, *, delay_s: float = 0.0) -> None:
        self.wire = wire
        self.delay_s = delay_s
        self.queued_most_s = 0.0
        self.played: list[tuple[float, bytes]] = []
        self.echo = True
        self.stalled = False
        """Whether nothing passes the network, neither way, for now."""
        self.pauses_until = 0.0
        """It plays nothing until then, though it has something."""
        self._late: list[Message] = []
        self._clock = clock
        self._seen = 0
        self._queue: deque[Message] = deque()

    @property
    def queued_s(self) -> float:
        return sum(isinstance(each, bytes) for each in self._queue) * FRAME_S

    async def run(self, seconds: float) -> None:
        """Let time pass, tick by tick."""
        for _ in range(round(seconds / FRAME_S)):
            await self._clock.advance(FRAME_S)
            self._take()
            self._play()

    def _take(self) -> None:
        if self.stalled:
            return
        self.wire.comes(*self._late)
        self._late.clear()
        arrived = self._clock.now() - self.delay_s
        while self._seen < len(self.wire.sent) and self.wire.sent[self._seen][0] <= arrived + 1e-9:
            message = self.wire.sent[self._seen][1]
            self._seen += 1
            if message == "clear":
                marks = [each for each in self._queue if isinstance(each, str)]
                self._queue.clear()
                self._echo(*marks)  # as Twilio does: pending marks come back
            elif isinstance(message, bytes) or message.startswith("mark"):
                self._queue.append(message)
        self.queued_most_s = max(self.queued_most_s, self.queued_s)

    def _play(self) -> None:
        if self._clock.now() < self.pauses_until:
            return
        while self._queue and isinstance(self._queue[0], str):
            self._echo(self._queue.popleft())
        if self._queue:
            sound = self._queue.popleft()
            assert isinstance(sound, bytes)
            self.played.append((self._clock.now(), sound))

    def _echo(self, *marks: Message) -> None:
        if self.echo and self.stalled:
            self._late += marks
        elif self.echo:
            self.wire.comes(*marks)
