"""Calls that came in and wait for the program to take them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qwen3tts_phone.sip.sip_call import SipCall

log = logging.getLogger(__name__)

MOST_WAITING = 100
"""About a second of set-ups on two cores. Without a bound the queue grows above that rate, while
datagrams are read in time, until callers give up unanswered (`benchmarks/setup_rate.py`)."""


class CallQueue:
    """First come, first served; full at ``most`` calls, and until half of them are taken."""

    def __init__(self, most: int) -> None:
        self._most = min(most, MOST_WAITING)
        self._queue: asyncio.Queue[SipCall | None] = asyncio.Queue()
        self._shedding = False

    def put(self, call: SipCall) -> None:
        """Have a call wait."""
        self._queue.put_nowait(call)

    def close(self) -> None:
        """No further call comes: `calls` ends with those that wait."""
        self._queue.put_nowait(None)

    @property
    def is_full(self) -> bool:
        """Whether no further call should wait."""
        if self._queue.qsize() >= self._most:
            self._forget_ended()
        most = self._most // 2 + 1 if self._shedding else self._most
        full = self._queue.qsize() >= most
        if full and not self._shedding:
            log.warning("%d calls wait to be taken: new ones get 503", self._queue.qsize())
        elif self._shedding and not full:
            log.info("calls are set up again: %d wait to be taken", self._queue.qsize())
        self._shedding = full
        return full

    async def calls(self) -> AsyncIterator[SipCall]:
        """The calls that are not over, until it is closed."""
        while (call := await self._queue.get()) is not None:
            # Callers that gave up before anybody looked need no answer any more.
            if call.ended is None:
                yield call
        self.close()

    def _forget_ended(self) -> None:
        for _ in range(self._queue.qsize()):
            call = self._queue.get_nowait()
            if call is None or call.ended is None:
                self._queue.put_nowait(call)
