"""What a call tells, for whoever follows it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from qwen3tts_phone.call_events import CallEnded, CallEvent

MAX_UNREAD = 512
"""Events that wait for a reader; further ones are lost to him, but for the end."""


class CallNews:
    """One call's events: one reader gets all of them, others those from when they begin."""

    def __init__(self) -> None:
        self._all: asyncio.Queue[CallEvent | None] = asyncio.Queue()
        self._followers: list[asyncio.Queue[CallEvent | None]] = []

    def tell(self, event: CallEvent) -> None:
        """Something happened."""
        for queue in (self._all, *self._followers):
            # Where nobody reads, the far end must not fill the memory with keys and messages.
            if queue.qsize() < MAX_UNREAD or isinstance(event, CallEnded):
                queue.put_nowait(event)

    def close(self) -> None:
        """Nothing more will happen."""
        for queue in (self._all, *self._followers):
            queue.put_nowait(None)

    def all(self) -> AsyncIterator[CallEvent]:
        """What happens, in order, to its end; for one reader."""
        return _iterate(self._all)

    async def following(self) -> AsyncIterator[CallEvent]:
        """What happens from now on; for any number of readers."""
        queue: asyncio.Queue[CallEvent | None] = asyncio.Queue()
        self._followers.append(queue)
        try:
            async for event in _iterate(queue):
                yield event
        finally:
            self._followers.remove(queue)


async def _iterate(queue: asyncio.Queue[CallEvent | None]) -> AsyncIterator[CallEvent]:
    while (event := await queue.get()) is not None:
        yield event
    queue.put_nowait(None)
