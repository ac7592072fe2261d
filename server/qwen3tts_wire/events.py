"""Context events and their bounded queue."""

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
    """Effective mode."""
    format: AudioFormat
    voice: str | None
    language: str | None
    ignored: tuple[str, ...]
    """Options unknown to the engine."""
    marks: Mapping[str, float]
    """Server-monotonic milliseconds."""


@dataclass(frozen=True, slots=True)
class Audio:
    """Consecutive samples."""

    pcm: bytes
    """In the context's format."""
    offset: int
    """First sample's position in the context."""
    received_at: float = 0.0
    """Client's monotonic seconds."""
    clause_start: bool = False
    """True if it begins a clause."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """Words of the following audio."""

    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """All audio has arrived."""

    samples: int
    """Samples of the whole context."""
    chars: int
    clauses: int
    reason: str
    """``text_end``, ``dry``, ``silence``, ``frame_cap``, ``repeated``, ``regenerated``,
    ``regenerated_cap`` or ``regenerated_repeated``."""
    marks: Mapping[str, float]
    """Server-monotonic milliseconds."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The answer to a cancel."""

    sent: int
    """Samples sent by the server (received, without its answer)."""
    generated: int
    """Samples made by the engine (likewise)."""
    text_heard: str
    text_remaining: str
    played: int = 0
    """Position of the text's cut."""
    confirmed: bool = True
    """False: computed here, without the server's answer."""
    marks: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Resumed:
    """Server change; positions go on, words behind ``offset`` are sent again."""

    offset: int
    """Position where audio goes on."""
    char: int
    """Text position where it goes on, code points."""
    gap_s: float
    """Seconds without audio."""
    reason: str
    """Reason of the loss."""


Event = Started | Audio | Alignment | Done | Resumed


class EventQueue:
    """Bounded queue of events, one reader."""

    def __init__(self, form: AudioFormat) -> None:
        self._width = form.bytes_per_sample
        self._events: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self.samples = 0

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
        """Drop up to so many last samples; return the count."""
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
