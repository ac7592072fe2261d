"""A sound that is played as it is, among what is said: a tone, a recording."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from qwen3tts_codecs.pcm import Pcm, to_bytes
from qwen3tts_speech.frame_writer import FrameWriter
from qwen3tts_speech.latency import UtteranceRecord
from qwen3tts_wire.errors import SpeechError

if TYPE_CHECKING:
    from qwen3tts_speech.line import Speaker

BLOCK_S = 0.1
"""So much is encoded in one go, some milliseconds of work: the event loop has other calls, too."""


class Sound:
    """It starts by itself when its turn has come, and ends when it was heard or interrupted."""

    def __init__(self, speaker: Speaker, number: int, samples: Pcm, rate_hz: int) -> None:
        self.number = number
        self.written = asyncio.Event()
        """Set when all of its frames are with the sink: what is said next may follow."""
        self._speaker = speaker
        self._samples = samples
        self._block = max(1, int(rate_hz * BLOCK_S))
        self._interrupted = self._running = False
        self._writer = FrameWriter(speaker, self, rate_hz, UtteranceRecord("", str(number)))
        self._task = asyncio.create_task(self._run(), name=f"sound {number}")
        # Nobody needs to ask how it ended.
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def played(self) -> bool:
        """Wait for its end; False: it was interrupted. Raises SpeechError when the call is over."""
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(self._task)
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise asyncio.CancelledError
        return not self._interrupted

    @property
    def stopped(self) -> bool:
        """Whether it was interrupted."""
        return self._interrupted

    def give_way(self) -> None:
        """It is played to its end first. For `Speaker`."""

    def stop(self) -> None:
        """The sink is silent already. For `Speaker`."""
        self._interrupted = True
        if self._running:  # a task cancelled before its first step would never tell its end
            self._task.cancel()

    def change(self) -> None:
        """The call has another codec: what waits is played in it. For `Speaker`."""
        self._writer.change()

    def pump(self) -> None:
        """Write what the change has made. For `Speaker`."""
        self._writer.pump()

    async def settled(self, most_s: float | None = None) -> None:
        """Wait for its end, whatever it is, and no longer than ``most_s`` seconds."""
        await asyncio.wait([self._task], timeout=most_s)

    async def _run(self) -> None:
        self._running = True
        try:
            if self._interrupted:
                raise asyncio.CancelledError
            for start in range(0, len(self._samples), self._block):
                await self._writer.push(to_bytes(self._samples[start : start + self._block]), "")
                await asyncio.sleep(0)  # a sink with room lets nobody in by itself
            await self._writer.flush("")
            self._writer.finish()
            self.written.set()
            if self._writer.begun:
                await self._speaker.sink.drained(self.number)
        finally:
            with contextlib.suppress(SpeechError):  # the call may be over
                if not self._interrupted:
                    self._writer.finish()
            self.written.set()
            self._speaker.ended(self)
