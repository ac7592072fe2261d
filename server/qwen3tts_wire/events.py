"""Events of a context, and the bounded queue that holds them until they are read."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from qwen3tts_wire.formats import AudioFormat
from qwen3tts_wire.heard import Word


@dataclass(frozen=True, slots=True)
class Started:
    """The server has accepted the context."""

    mode: str
    """The mode really used."""
    format: AudioFormat
    voice: str | None
    language: str | None
    ignored: tuple[str, ...]
    """Options that the engine does not know."""
    marks: Mapping[str, float]
    """Server-monotonic milliseconds."""


@dataclass(frozen=True, slots=True)
class Audio:
    """Samples that follow on those before."""

    pcm: bytes
    """In the context's format."""
    offset: int
    """Position of the first sample in the context."""
    received_at: float = 0.0
    """The client's monotonic clock, seconds."""
    clause_start: bool = False
    """The first sample is the first of a clause."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """Words of the audio that follows."""

    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """All audio has arrived."""

    samples: int
    """Samples of the whole context."""
    chars: int
    clauses: int
    reason: str
    """``text_end``, ``dry``, ``regenerated``, ``silence`` or ``frame_cap``."""
    marks: Mapping[str, float]
    """Server-monotonic milliseconds."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The answer to a cancel."""

    sent: int
    """Samples that the server sent (received, where the server did not answer)."""
    generated: int
    """Samples that the engine made (received, where the server did not answer)."""
    text_heard: str
    text_remaining: str
    played: int = 0
    """The position that the text was cut at."""
    confirmed: bool = True
    """The server's answer; False: worked out here, because the server is gone or had forgotten."""
    marks: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Resumed:
    """The server was lost; following audio comes from another connection.

    Positions go on. Words behind ``offset`` are sent again.
    """

    offset: int
    """Position at which the sound goes on."""
    char: int
    """Position in the text where it goes on, in code points."""
    gap_s: float
    """Seconds from the last sound received to this."""
    reason: str
    """Reason of the loss."""


Event = Started | Audio | Alignment | Done | Resumed


class EventQueue:
    """Queue of events for one reader."""

    def __init__(self, form: AudioFormat) -> None:
        self._width = form.bytes_per_sample
        self._events: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self.samples = 0
        """Samples that wait in it."""

    def __bool__(self) -> bool:
        return bool(self._events)

    def put(self, event: Event) -> None:
        self._events.append(event)
        if isinstance(event, Audio):
            self.samples += self.count(event)
        self._arrived.set()

    def take(self) -> Event:
        event = self._events.popleft()
        if isinstance(event, Audio):
            self.samples -= self.count(event)
        return event

    def take_back(self, samples: int) -> int:
        """Drop up to so many of the last samples; return how many were dropped."""
        back = 0
        kept: list[Event] = []
        while back < samples and self._events:
            event = self._events.pop()
            if isinstance(event, Audio):
                out = min(samples - back, self.count(event))
                back += out
                if left := event.pcm[: len(event.pcm) - out * self._width]:
                    kept.append(Audio(left, event.offset, event.received_at, event.clause_start))
            else:
                kept.append(event)
        self._events.extend(reversed(kept))
        self.samples -= back
        return back

    def clear(self) -> None:
        self._events.clear()
        self.samples = 0
        self._arrived.set()

    def count(self, event: Audio) -> int:
        return len(event.pcm) // self._width

    def wake(self) -> None:
        self._arrived.set()

    async def wait(self) -> None:
        self._arrived.clear()
        await self._arrived.wait()
