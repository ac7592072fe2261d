"""Stand-ins shared by all tests."""

from __future__ import annotations

import asyncio
import heapq
import itertools


class FakeClock:
    """A clock that moves only when a test moves it."""

    def __init__(self, start: float = 100.0) -> None:
        self._now = start
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    async def sleep_until(self, deadline: float) -> None:
        if deadline <= self._now:
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (deadline, next(self._order), woken))
        await woken

    def jump(self, seconds: float) -> None:
        """Time has passed, and nobody could run meanwhile."""
        self._now += seconds

    async def advance(self, seconds: float) -> None:
        """Move time forward, waking each sleeper at its own deadline, in order."""
        end = self._now + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            deadline, _, woken = heapq.heappop(self._sleepers)
            self._now = max(self._now, deadline)
            if not woken.done():
                woken.set_result(None)
            await settle()
        self._now = end


async def settle(rounds: int = 10) -> None:
    """Let every task that can run, run."""
    for _ in range(rounds):
        await asyncio.sleep(0)
