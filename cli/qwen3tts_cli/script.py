"""The words of a call, read as they come, which can be said again from any place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qwen3tts_cli.words import Words

AHEAD_CHARS = 2000
"""Characters that are read ahead of the voice; then the source waits."""


class Script:
    """Words that are being read from their source; `close` it."""

    def __init__(self, words: Words) -> None:
        from qwen3tts_agent.replayable_text import ReplayableText

        self.heard_chars = 0
        """Length of what the far end has heard, from the beginning."""
        self._text = ReplayableText(AHEAD_CHARS)
        self._reading = asyncio.create_task(self._read(words), name="words")

    async def _read(self, words: Words) -> None:
        try:
            async for delta in words.open():
                await self._text.write(delta)
        finally:
            self._text.end()

    async def rest(self) -> AsyncIterator[str]:
        """What was not heard yet, as it comes; raises what the source raises."""
        async with aclosing(self._text.read_from(self.heard_chars)) as deltas:
            async for delta in deltas:
                yield delta
        await asyncio.shield(self._reading)

    def skip(self) -> None:
        """Take what was read so far as done with."""
        self.heard_chars = len(self._text.text)

    async def close(self) -> None:
        """Read no more."""
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
