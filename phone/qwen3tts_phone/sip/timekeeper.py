"""Sleeps to the agent's deadlines, one after another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from qwen3tts_pacer.clock import Clock

log = logging.getLogger(__name__)


class Timekeeper:
    """Calls ``tick`` when ``next_deadline`` has come, in seconds of the clock."""

    def __init__(
        self, clock: Clock, next_deadline: Callable[[], float | None], tick: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._next_deadline = next_deadline
        self._tick = tick
        self._task: asyncio.Task[None] | None = None
        self._wakes_at = 0.0
        self._look_due: asyncio.Handle | None = None
        self._stopped = False

    def look(self) -> None:
        """The deadline may be another one by now."""
        if self._look_due is None and not self._stopped:
            # Once for all datagrams of a burst: it looks at every call there is.
            self._look_due = asyncio.get_running_loop().call_soon(self._set)

    def stop(self) -> None:
        """Nothing is due any more."""
        self._stopped = True
        if self._look_due is not None:
            self._look_due.cancel()
        if self._task is not None:
            self._task.cancel()

    def _set(self) -> None:
        self._look_due = None
        deadline = self._next_deadline()
        running = self._task is not None and not self._task.done()
        if deadline is None or (running and self._wakes_at <= deadline):
            return
        if self._task is not None:
            self._task.cancel()
        self._wakes_at = deadline
        self._task = asyncio.get_running_loop().create_task(self._keep_time())

    async def _keep_time(self) -> None:
        while (deadline := self._next_deadline()) is not None:
            self._wakes_at = deadline
            await self._clock.sleep_until(deadline)
            # Whatever happens in the tick, this loop looks at the deadlines again.
            self._wakes_at = float("-inf")
            try:
                self._tick()
            except Exception:
                log.exception("a SIP timer failed")
