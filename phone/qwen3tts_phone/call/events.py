"""Events of a call, and their readers. Times are seconds of the monotonic clock."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal, Protocol

MAX_UNREAD_EVENTS = 512
"""Events queued for a reader; further ones are dropped, but for the end."""


@dataclass(frozen=True, slots=True)
class CallRinging:
    """The far end rings (180)."""

    at: float


@dataclass(frozen=True, slots=True)
class CallForwarded:
    """The call is being forwarded (181)."""

    at: float


@dataclass(frozen=True, slots=True)
class CallQueued:
    """Queued at the far end (182)."""

    at: float


@dataclass(frozen=True, slots=True)
class CallEarlyMedia:
    """Early media: a ring-back tone, an announcement."""

    at: float


@dataclass(frozen=True, slots=True)
class CallAnswered:
    """The call is answered; sound may flow."""

    at: float
    codec: str
    """SDP name of the outbound codec."""


@dataclass(frozen=True, slots=True)
class AnswererHeard:
    at: float
    kind: Literal["human", "machine", "silence"]
    words: str
    """Reason of the decision."""


@dataclass(frozen=True, slots=True)
class CodecChanged:
    """Change of the outbound codec; speech goes on."""

    at: float
    codec: str


@dataclass(frozen=True, slots=True)
class MediaBegan:
    """First packet of the far end, or of another address."""

    at: float


@dataclass(frozen=True, slots=True)
class CallHeld:
    """Hold by the far end: speech waits."""

    at: float


@dataclass(frozen=True, slots=True)
class CallResumed:
    at: float


@dataclass(frozen=True, slots=True)
class InfoHeard:
    """A SIP INFO arrived that is no DTMF."""

    at: float
    content_type: str
    body: str


@dataclass(frozen=True, slots=True)
class MediaSilent:
    """No packets for some time although the far end should send."""

    at: float
    silent_s: float
    ever: bool = True
    """True if anything has come on this call before."""


@dataclass(frozen=True, slots=True)
class TransferProgress:
    """Progress of a transfer that we asked for."""

    at: float
    status: int
    """100 = begun, 180 = it rings there, 200 = taken, 300 and above = not."""
    reason: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    at: float
    cause: str
    """In plain words."""
    by: str = ""
    """``local``, ``remote``, ``timeout`` or ``error``."""
    status: int | None = None
    """SIP's final answer, where there was one."""
    code: str = ""
    """Name of the kind of error; empty = it ended by hanging up."""
    remedy: str = ""


LineEvent = (
    CallRinging
    | CallForwarded
    | CallQueued
    | CallEarlyMedia
    | CallAnswered
    | AnswererHeard
    | CodecChanged
    | MediaBegan
    | CallHeld
    | CallResumed
    | InfoHeard
    | MediaSilent
    | TransferProgress
    | CallEnded
)


class TimedEvent(Protocol):
    @property
    def at(self) -> float: ...


class EventStream:
    """Events of a call: all for one reader, those from their start on for others."""

    def __init__(self) -> None:
        self._all = _EventReader()
        self._followers: weakref.WeakSet[_EventReader] = weakref.WeakSet()
        self._over = False

    def publish(self, event: TimedEvent) -> None:
        for reader in (self._all, *self._followers):
            reader.put(event)

    def close(self) -> None:
        self._over = True
        for reader in (self._all, *self._followers):
            reader.put(None)

    def all(self) -> AsyncIterator[TimedEvent]:
        return self._all

    def following(self) -> AsyncIterator[TimedEvent]:
        reader = _EventReader()
        if self._over:
            reader.put(None)
        self._followers.add(reader)
        return reader


class _EventReader(AsyncIterator[TimedEvent]):
    def __init__(self) -> None:
        self._queue: asyncio.Queue[TimedEvent | None] = asyncio.Queue()

    def put(self, event: TimedEvent | None) -> None:
        # Without a reader, the far end must not fill the memory with keys and messages.
        last = event is None or isinstance(event, CallEnded)
        if last or self._queue.qsize() < MAX_UNREAD_EVENTS:
            self._queue.put_nowait(event)

    async def __anext__(self) -> TimedEvent:
        event = await self._queue.get()
        if event is None:
            self._queue.put_nowait(None)  # for who asks again
            raise StopAsyncIteration
        return event
