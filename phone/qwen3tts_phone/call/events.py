"""Events of a call, and their readers. Times are seconds of the monotonic clock."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from qwen3tts_phone.audio.frames import KeyPressed

if TYPE_CHECKING:
    from qwen3tts_phone.call.phone_call import PhoneCall


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
class TransferAsked:
    """The far end wants us to call ``target`` in its place (REFER).

    Nobody has agreed to it yet: await ``accept()``, or call ``refuse()``.
    """

    at: float
    target: str
    referred_by: str
    """Who asks, as it says; empty = it does not say."""
    accept: Callable[[], Awaitable[PhoneCall]] = field(repr=False)
    """Call the target and tell the far end how it goes; the new call. Raises CallError."""
    refuse: Callable[[], None] = field(repr=False)


@dataclass(frozen=True, slots=True, match_args=False)
class CallTransferred:
    """The far end has handed us on: ``call`` is the one to the other party, and up.

    This call ends, as the far end hangs up.
    """

    at: float
    _call: PhoneCall = field(repr=False)

    __match_args__ = ("at", "call")

    @property
    def call(self) -> PhoneCall:
        """The new call. Reading this takes it over; a call that nothing takes over is hung up."""
        self._call.claim()
        return self._call


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


CallEvent = (
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
    | KeyPressed
    | InfoHeard
    | MediaSilent
    | TransferProgress
    | TransferAsked
    | CallTransferred
    | CallEnded
)


MAX_UNREAD_EVENTS = 512
"""Events that wait for a reader; further ones are lost to him, but for the end."""


class EventStream:
    """One call's events: one reader gets all of them, others those from when they ask for them."""

    def __init__(self) -> None:
        self._all = _EventReader()
        self._followers: weakref.WeakSet[_EventReader] = weakref.WeakSet()
        self._over = False

    def tell(self, event: CallEvent) -> None:
        """Something happened."""
        for reader in (self._all, *self._followers):
            reader.put(event)

    def close(self) -> None:
        """Nothing more will happen."""
        self._over = True
        for reader in (self._all, *self._followers):
            reader.put(None)

    def all(self) -> AsyncIterator[CallEvent]:
        """What happens, in order, to its end; for one reader."""
        return self._all

    def following(self) -> AsyncIterator[CallEvent]:
        """What happens from now on; for any number of readers. One that is dropped is forgotten."""
        reader = _EventReader()
        if self._over:
            reader.put(None)
        self._followers.add(reader)
        return reader


class _EventReader(AsyncIterator[CallEvent]):
    """One reader's events."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[CallEvent | None] = asyncio.Queue()

    def put(self, event: CallEvent | None) -> None:
        # Where nobody reads, the far end must not fill the memory with keys and messages.
        last = event is None or isinstance(event, CallEnded)
        if last or self._queue.qsize() < MAX_UNREAD_EVENTS:
            self._queue.put_nowait(event)

    async def __anext__(self) -> CallEvent:
        event = await self._queue.get()
        if event is None:
            self._queue.put_nowait(None)  # for who asks again
            raise StopAsyncIteration
        return event
