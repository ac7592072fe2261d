"""How many requests are at the server at once; the others wait in order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from qwen3tts_engine.base import EngineLoad
from qwen3tts_wire.errors import ServerBusy


class Slots:
    """``count`` requests at once, ``most_waiting`` more may wait for ``patience_s`` each."""

    def __init__(self, count: int, most_waiting: int, patience_s: float) -> None:
        self._count = count
        self._most_waiting = most_waiting
        self._patience_s = patience_s
        self._free = asyncio.Semaphore(count)
        self._busy = 0
        self._waiting = 0

    @property
    def load(self) -> EngineLoad:
        """As it is now."""
        return EngineLoad(self._count, self._busy, self._waiting)

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Have a slot.

        Raises:
            ServerBusy: too many wait, or none was free in time.
        """
        if self._free.locked() and self._waiting >= self._most_waiting:
            raise ServerBusy(
                f"{self._count} requests are at the upstream server and {self._waiting} wait.",
                remedy="Try again later.",
            )
        self._waiting += 1
        try:
            async with asyncio.timeout(self._patience_s):
                await self._free.acquire()
        except TimeoutError as error:
            raise ServerBusy(
                f"All {self._count} connections to the upstream server stayed busy.",
                remedy="Try again later, or allow more (upstream.max_connections).",
            ) from error
        finally:
            self._waiting -= 1
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            self._free.release()
