"""Timers of the user agent and queue of incoming calls."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable

from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.errors import traceback_without_message
from qwen3tts_phone.sip.sip_call import SipCall

log = logging.getLogger(__name__)

SEARCH_SHARE = 0.05
"""Share of time spent on finding deadlines; with many calls timers fire later."""
SEARCH_FREE_S = 0.0005
"""A search that takes no longer is never delayed."""
LATE_MOST_S = 0.1
"""Longest delay of a search; a fifth of T1."""


class TimerScheduler:
    """Calls ``tick`` at ``next_deadline``, clock seconds."""

    def __init__(
        self, clock: Clock, next_deadline: Callable[[], float | None], tick: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._next_deadline = next_deadline
        self._tick = tick
        self._task: asyncio.Task[None] | None = None
        self._wakes_at = 0.0
        self._pending: asyncio.Handle | None = None
        self._stopped = False
        self._not_before = 0.0  # of time.perf_counter()

    def reschedule(self) -> None:
        if self._pending is None and not self._stopped:
            # Once for all datagrams of a burst: it visits every call.
            loop = asyncio.get_running_loop()
            wait_s = self._not_before - time.perf_counter()
            self._pending = (
                loop.call_later(wait_s, self._set) if wait_s > 0 else loop.call_soon(self._set)
            )

    def stop(self) -> None:
        self._stopped = True
        if self._pending is not None:
            self._pending.cancel()
        if self._task is not None:
            self._task.cancel()

    def _set(self) -> None:
        self._pending = None
        deadline = self._find_deadline()
        running = self._task is not None and not self._task.done()
        if deadline is None or (running and self._wakes_at <= deadline):
            return
        if self._task is not None:
            self._task.cancel()
        self._wakes_at = deadline
        self._task = asyncio.get_running_loop().create_task(self._keep_time())

    def _find_deadline(self) -> float | None:
        began = time.perf_counter()
        deadline = self._next_deadline()
        ended = time.perf_counter()
        took_s = ended - began
        free = took_s < SEARCH_FREE_S
        self._not_before = 0.0 if free else ended + min(LATE_MOST_S, took_s / SEARCH_SHARE)
        return deadline

    async def _keep_time(self) -> None:
        while (deadline := self._find_deadline()) is not None:
            self._wakes_at = deadline
            put_off_s = max(0.0, self._not_before - time.perf_counter())
            await self._clock.sleep_until(max(deadline, self._clock.now() + put_off_s))
            # Even after an error the loop goes on.
            self._wakes_at = float("-inf")
            try:
                self._tick()
            except Exception as error:
                log.error("a SIP timer failed\n%s", traceback_without_message(error))


MOST_WAITING = 100
"""About a second of set-ups on two cores; unbounded, callers give up unanswered
(`benchmarks/setup_rate.py`)."""


class IncomingCallQueue:
    """Incoming calls; full at ``most``, until half are taken."""

    def __init__(self, most: int) -> None:
        self._most = min(most, MOST_WAITING)
        self._queue: asyncio.Queue[SipCall | None] = asyncio.Queue()
        self._shedding = False

    def put(self, call: SipCall) -> None:
        self._queue.put_nowait(call)

    def close(self) -> None:
        self._queue.put_nowait(None)

    @property
    def is_full(self) -> bool:
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
        while (call := await self._queue.get()) is not None:
            # Callers that gave up before the call was taken need no answer.
            if call.ended is None:
                yield call
        self.close()

    def _forget_ended(self) -> None:
        for _ in range(self._queue.qsize()):
            call = self._queue.get_nowait()
            if call is None or call.ended is None:
                self._queue.put_nowait(call)
