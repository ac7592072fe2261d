"""The way of a generation's sound from the engine's thread to its reader's event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from qwen3tts_engine.base import PcmChunk
from qwen3tts_wire.errors import SpeechError


class LoopOutlet:
    """An Outlet (jobs.py) whose reader is a coroutine of the loop that it was made in."""

    def __init__(self, bound: int, on_room: Callable[[], None]) -> None:
        """``on_room`` is called on the loop when less than ``bound`` samples are unread again."""
        self._loop = asyncio.get_running_loop()
        self._bound = bound
        self._on_room = on_room
        self._chunks: deque[PcmChunk] = deque()
        self._arrived = asyncio.Event()
        self._error: SpeechError | None = None
        self._finished = False
        # One writer each: the engine's thread and the reader's loop.
        self._put = 0
        self._read = 0

    # The engine's thread

    @property
    def unread(self) -> int:
        """Samples put and not yet read."""
        return self._put - self._read

    def put(self, chunk: PcmChunk) -> None:
        """Sound, or words."""
        self._put += chunk.samples
        self._tell(chunk)

    def finish(self, error: SpeechError | None) -> None:
        """Nothing follows; or it broke."""
        self._error = error
        self._tell(None)

    def _tell(self, chunk: PcmChunk | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._arrive, chunk)
        except RuntimeError:
            # The loop is closed, and its readers with it.
            return

    # The loop

    def _arrive(self, chunk: PcmChunk | None) -> None:
        if chunk is None:
            self._finished = True
        else:
            self._chunks.append(chunk)
        self._arrived.set()

    async def next(self) -> PcmChunk | None:
        """The next chunk; None at the end.

        Raises:
            SpeechError: it broke; what was made before has been read.
        """
        while not self._chunks:
            if self._finished:
                if self._error is not None:
                    raise self._error
                return None
            self._arrived.clear()
            await self._arrived.wait()
        chunk = self._chunks.popleft()
        was_full = self.unread >= self._bound
        self._read += chunk.samples
        if was_full and self.unread < self._bound:
            self._on_room()
        return chunk
