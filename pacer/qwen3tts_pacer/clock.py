"""The monotonic clock, read and waited for in one place."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Source of time for shells; cores get ``now`` as an argument instead."""

    def now(self) -> float:
        """Seconds on a monotonic scale; only differences mean anything."""
        ...

    async def sleep_until(self, deadline: float) -> None:
        """Return once ``now()`` has reached ``deadline`` (seconds), at once if it has passed."""
        ...


class LoopClock:
    """Real time: CLOCK_MONOTONIC, waited for by the running asyncio loop."""

    def now(self) -> float:
        """Seconds of CLOCK_MONOTONIC."""
        return time.monotonic()

    async def sleep_until(self, deadline: float) -> None:
        """Wait for ``deadline``; gives other tasks a turn even when it has passed."""
        import asyncio  # the media process does without

        left = deadline - time.monotonic()
        await asyncio.sleep(max(0.0, left))
        if left > 0 and (left := deadline - time.monotonic()) > 0:
            await asyncio.sleep(left)  # a loop may wake a sleeper early by its clock's resolution
