"""What a call tells, for whoever follows it."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator

from qwen3tts_phone.call_events import CallEnded, CallEvent

MAX_UNREAD = 512
"""Events that wait for a reader; further ones are lost to him, but for the end."""


class CallNews:
    """One call's events: one reader gets all of them, others those from when they ask for them."""

    def __init__(self) -> None:
        self._all = _Reader()
        self._followers: weakref.WeakSet[_Reader] = weakref.WeakSet()
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
        reader = _Reader()
        if self._over:
            reader.put(None)
        self._followers.add(reader)
        return reader


class _Reader(AsyncIterator[CallEvent]):
    """One reader's events."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[CallEvent | None] = asyncio.Queue()

    def put(self, event: CallEvent | None) -> None:
        # Where nobody reads, the far end must not fill the memory with keys and messages.
        last = event is None or isinstance(event, CallEnded)
        if last or self._queue.qsize() < MAX_UNREAD:
            self._queue.put_nowait(event)

    async def __anext__(self) -> CallEvent:
        event = await self._queue.get()
        if event is None:
            self._queue.put_nowait(None)  # for who asks again
            raise StopAsyncIteration
        return event
