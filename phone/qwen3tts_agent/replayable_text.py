"""Growing text that can be read again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator


class ReplayableText:
    """Text between its writer and the voice.

    The writer waits while ``most_chars`` are unread (backpressure).
    """

    def __init__(self, most_chars: int) -> None:
        self.text = ""
        """All that was written."""
        self.complete = False
        self._most = most_chars
        self._read = 0
        self._changed = asyncio.Event()

    @property
    def unread(self) -> int:
        return len(self.text) - self._read

    async def write(self, delta: str) -> None:
        self.text += delta
        self._changed.set()
        while self.unread >= self._most and not self.complete:
            await self._change()

    def end(self) -> None:
        self.complete = True
        self._changed.set()

    async def read_from(self, position: int) -> AsyncGenerator[str, None]:
        self._read = position
        self._changed.set()
        while True:
            if self._read < len(self.text):
                delta, self._read = self.text[self._read :], len(self.text)
                self._changed.set()
                yield delta
            elif self.complete:
                return
            else:
                await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
