"""A reply's text between the model that writes it and the voice that says it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator


class ReplayableText:
    """Text that grows at one end and is read at the other; bounded, and nothing of it is dropped.

    Who has written waits while ``most_chars`` or more are unread. Reading may begin anew at an
    earlier place, where the caller was interrupted.
    """

    def __init__(self, most_chars: int) -> None:
        self.text = ""
        """All that was written."""
        self.ended = False
        self._most = most_chars
        self._read = 0
        self._changed = asyncio.Event()

    @property
    def unread(self) -> int:
        """Characters that nobody has taken yet."""
        return len(self.text) - self._read

    async def write(self, delta: str) -> None:
        """Put more behind it, and wait until there is room for what comes next.

        Cancelled while it waits, it has written.
        """
        self.text += delta
        self._changed.set()
        while self.unread >= self._most and not self.ended:
            await self._change()

    def end(self) -> None:
        """No more comes; harmless when said before."""
        self.ended = True
        self._changed.set()

    async def read_from(self, place: int) -> AsyncGenerator[str, None]:
        """The text from ``place`` on, as it grows, to its end; one reader at a time."""
        self._read = place
        self._changed.set()
        while True:
            if self._read < len(self.text):
                delta, self._read = self.text[self._read :], len(self.text)
                self._changed.set()
                yield delta
            elif self.ended:
                return
            else:
                await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
