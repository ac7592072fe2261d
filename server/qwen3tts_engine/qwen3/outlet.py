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
        """``on_room`` is called when less than ``bound`` samples are unread again, on the loop, and
        when the reader turns out to be gone, on the engine's thread."""
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
        self.gone = False
        """Whether nobody can read any more: the loop was closed."""

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
            self.gone = True
            self._on_room()

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
                    # Others are told the same: without this it would keep the frames of all.
                    raise self._error.with_traceback(None)
                return None
            self._arrived.clear()
            await self._arrived.wait()
        chunk = self._chunks.popleft()
        samples = chunk.samples
        self._read += samples
        # Looked at afterwards: the engine may have put more and found no room meanwhile.
        unread = self.unread
        if unread < self._bound <= unread + samples:
            self._on_room()
        return chunk
