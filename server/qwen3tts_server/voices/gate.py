"""Work that is bounded: so much at once, so much that waits, one at a time for one thing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from qwen3tts_wire.errors import ServerBusy


class Gate:
    """Lets ``most`` in at once; ``waiting`` more may wait."""

    def __init__(self, most: int, waiting: int) -> None:
        self._room = asyncio.Semaphore(most)
        self._most = most + waiting
        self._here = 0

    @contextlib.asynccontextmanager
    async def entered(self) -> AsyncIterator[None]:
        """For the length of a block.

        Raises:
            ServerBusy: too many wait.
        """
        if self._here >= self._most:
            raise ServerBusy(
                f"{self._here} voices are being made ready.", remedy="Try again in a moment."
            )
        self._here += 1
        try:
            async with self._room:
                yield
        finally:
            self._here -= 1


class Turns:
    """Whoever wants the same thing waits for who has it."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @contextlib.asynccontextmanager
    async def of(self, thing: str) -> AsyncIterator[None]:
        """Alone with one thing, for the length of a block."""
        lock, count = self._locks.get(thing, (asyncio.Lock(), 0))
        self._locks[thing] = (lock, count + 1)
        try:
            async with lock:
                yield
        finally:
            lock, count = self._locks[thing]
            if count > 1:
                self._locks[thing] = (lock, count - 1)
            else:
                del self._locks[thing]
