"""Monotonic clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Source of time for shells; cores take ``now`` as an argument."""

    def now(self) -> float: ...

    async def sleep_until(self, deadline: float) -> None: ...


class LoopClock:
    """CLOCK_MONOTONIC and the running asyncio loop."""

    def now(self) -> float:
        return time.monotonic()

    async def sleep_until(self, deadline: float) -> None:
        import asyncio  # the media process does without

        left = deadline - time.monotonic()
        await asyncio.sleep(max(0.0, left))
        if left > 0 and (left := deadline - time.monotonic()) > 0:
            await asyncio.sleep(left)  # a loop may wake a sleeper early by its clock's resolution
