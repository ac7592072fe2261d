"""Events of a call, and their readers. Times are seconds of the monotonic clock."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True)
class CallRinging:
    """The phone at the far end rings."""

    at: float


@dataclass(frozen=True, slots=True)
class CallForwarded:
    """The call is being forwarded to another phone (181)."""

    at: float


@dataclass(frozen=True, slots=True)
class CallQueued:
    """The call waits in a queue at the far end (182)."""

    at: float


@dataclass(frozen=True, slots=True)
class CallEarlyMedia:
    """The far end sends sound before it answers: a ring-back tone, an announcement."""

    at: float


@dataclass(frozen=True, slots=True)
class CallAnswered:
    """Both ends agree; sound may flow."""

    at: float
    codec: str
    """What we send: PCMU, PCMA, G722 or opus."""


@dataclass(frozen=True, slots=True)
class AnswererHeard:
    """A person, a machine or nobody has taken a call of ours; where somebody listens for it."""

    at: float
    kind: Literal["human", "machine", "silence"]
    words: str
    """By what."""


@dataclass(frozen=True, slots=True)
class CodecChanged:
    """What we send has another codec from now on; what is being said goes on in it."""

    at: float
    codec: str


@dataclass(frozen=True, slots=True)
class MediaBegan:
    """The first sound of the far end has come, or the first from another address."""

    at: float


@dataclass(frozen=True, slots=True)
class CallHeld:
    """The far end put us on hold: speech waits, nothing of it is lost."""

    at: float


@dataclass(frozen=True, slots=True)
class CallResumed:
    """The far end took us back."""

    at: float


@dataclass(frozen=True, slots=True)
class InfoHeard:
    """The far end sent a SIP INFO that is no key."""

    at: float
    content_type: str
    body: str


@dataclass(frozen=True, slots=True)
class MediaSilent:
    """Nothing has come from the far end for so long, although it should."""

    at: float
    silent_s: float
    ever: bool = True
    """Whether anything has come on this call before."""


@dataclass(frozen=True, slots=True)
class TransferProgress:
    """How a transfer that we asked for goes: the far end's call to its target."""

    at: float
    status: int
    """100 = begun, 180 = it rings there, 200 = taken, 300 and above = not."""
    reason: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The call is over; the last event."""

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


MAX_UNREAD_EVENTS = 512
"""Events that wait for a reader; further ones are lost to him, but for the end."""


class TimedEvent(Protocol):
    """An event of a call: a member of `qwen3tts_phone.call.call.CallEvent`."""

    @property
    def at(self) -> float:
        """Seconds of the monotonic clock."""


class EventStream:
    """One call's events: one reader gets all of them, others those from when they ask for them."""

    def __init__(self) -> None:
        self._all = _EventReader()
        self._followers: weakref.WeakSet[_EventReader] = weakref.WeakSet()
        self._over = False

    def tell(self, event: TimedEvent) -> None:
        """Something happened."""
        for reader in (self._all, *self._followers):
            reader.put(event)

    def close(self) -> None:
        """Nothing more will happen."""
        self._over = True
        for reader in (self._all, *self._followers):
            reader.put(None)

    def all(self) -> AsyncIterator[TimedEvent]:
        """What happens, in order, to its end; for one reader."""
        return self._all

    def following(self) -> AsyncIterator[TimedEvent]:
        """What happens from now on; for any number of readers. One that is dropped is forgotten."""
        reader = _EventReader()
        if self._over:
            reader.put(None)
        self._followers.add(reader)
        return reader


class _EventReader(AsyncIterator[TimedEvent]):
    """One reader's events."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[TimedEvent | None] = asyncio.Queue()

    def put(self, event: TimedEvent | None) -> None:
        # Where nobody reads, the far end must not fill the memory with keys and messages.
        last = event is None or isinstance(event, CallEnded)
        if last or self._queue.qsize() < MAX_UNREAD_EVENTS:
            self._queue.put_nowait(event)

    async def __anext__(self) -> TimedEvent:
        event = await self._queue.get()
        if event is None:
            self._queue.put_nowait(None)  # for who asks again
            raise StopAsyncIteration
        return event
