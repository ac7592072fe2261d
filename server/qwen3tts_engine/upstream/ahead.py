"""A stream read ahead of its reader, so that a slow reader does not stall the server."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing


class Ahead:
    """An asynchronous iterator of what ``source`` gives, which a task of its own reads.

    A server that cannot write pings in vain and cuts a slow reader off, and keeps a slot for him;
    so what it sends is taken at once, up to ``most`` bytes. Errors come after what was before them.
    """

    def __init__(self, source: AsyncGenerator[bytes, None], most: int) -> None:
        self._most = most
        self._pieces: deque[bytes] = deque()
        self.held = 0
        """Bytes read and not yet taken."""
        self._change = asyncio.Event()
        self._room = asyncio.Event()
        self._ended = False
        self._error: Exception | None = None
        self._task = asyncio.create_task(self._read(source), name="read from upstream")

    def __aiter__(self) -> Ahead:
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            self._change.clear()
            await self._change.wait()
        piece = self._pieces.popleft()
        self.held -= len(piece)
        self._room.set()
        return piece

    def fail(self, error: Exception) -> None:
        """End it from outside: what is held is dropped, the reader gets ``error``."""
        self._task.cancel()
        self._pieces.clear()
        self.held = 0
        self._error = error
        self._change.set()

    async def aclose(self) -> None:
        """Stop; returns when the source is closed."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _read(self, source: AsyncGenerator[bytes, None]) -> None:
        try:
            async with aclosing(source):
                async for piece in source:
                    self._pieces.append(piece)
                    self.held += len(piece)
                    self._change.set()
                    while self.held > self._most:
                        self._room.clear()
                        await self._room.wait()
        except Exception as error:
            self._error = self._error or error
        finally:
            self._ended = True
            self._change.set()
