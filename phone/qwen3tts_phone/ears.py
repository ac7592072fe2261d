"""What a call hears: frames of the far end, given to the recording and to whoever listens.

Where they come from is not its matter: a leg of the media process (`leg_ears`), or a stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable

import numpy as np

from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.call_events import HeardFrame
from qwen3tts_phone.call_facts import MediaFacts
from qwen3tts_phone.playout import Playout

LISTEN_FRAMES = 500
"""Frames kept for a listener that does not keep up (10 s); the oldest go first, and are counted."""
LOUD_PEAK = 64
"""A frame with a sample above this is sound; idle codes and the noise of a quiet line are not."""

Tap = Callable[[HeardFrame], None]
"""Is given each frame when it is taken; it must take no time."""


class Ears:
    """One call's; frames are taken from its line and given to all who listen."""

    def __init__(self, clock: Clock, facts: MediaFacts) -> None:
        self.unheard_frames = 0
        """Frames of the caller that a listener was too slow to take."""
        self.ptime_ms = 20
        """Length of a frame of the steady sound."""
        self.fetch: Callable[[], None] = _nothing
        """Takes what has come to the line and has not been looked at yet."""
        self._clock = clock
        self._facts = facts
        self._taps: list[Tap] = []
        self._listeners: list[asyncio.Queue[HeardFrame | None]] = []
        self._over = False

    def take(self, heard: HeardFrame) -> None:
        """A frame of the far end has come."""
        facts = self._facts
        loud = not (heard.concealed or heard.noise) and len(heard.samples) > 0
        if loud and int(np.abs(heard.samples.astype(np.int32)).max()) > LOUD_PEAK:
            facts.loud_in_s = (facts.loud_in_s or 0.0) + heard.duration_s
        elif facts.loud_in_s is None:
            facts.loud_in_s = 0.0
        for tap in list(self._taps):
            tap(heard)
        for queue in self._listeners:
            if queue.qsize() >= LISTEN_FRAMES:
                queue.get_nowait()
                self.unheard_frames += 1
            queue.put_nowait(heard)

    def tap(self, tap: Tap) -> None:
        """``tap`` is given every frame from now on, at the moment it is taken."""
        self._taps.append(tap)

    def untap(self, tap: Tap) -> None:
        """No more of them; harmless where it was never tapped."""
        if tap in self._taps:
            self._taps.remove(tap)

    async def audio(self, *, steady: bool = False) -> AsyncGenerator[HeardFrame, None]:
        """Frame by frame until the call ends; for any number of readers.

        As they come; ``steady``: on our clock, one for each packet time, without holes: behind an
        adaptive jitter buffer, for recording, bridging and recognisers that count time by frames.
        """
        queue: asyncio.Queue[HeardFrame | None] = asyncio.Queue()
        self._listeners.append(queue)
        if self._over:
            queue.put_nowait(None)
        try:
            frames = self._steady(queue) if steady else _as_they_come(queue)
            async for frame in frames:
                yield frame
        finally:
            self._listeners.remove(queue)

    def close(self) -> None:
        """Nothing comes any more."""
        self._over = True
        for queue in self._listeners:
            queue.put_nowait(None)

    # --- inside

    async def _steady(self, queue: asyncio.Queue[HeardFrame | None]) -> AsyncIterator[HeardFrame]:
        first = await queue.get()
        if first is None:
            return
        playout = Playout(first.rate_hz, self.ptime_ms)
        playout.push(first)
        while (deadline := playout.next_deadline) is not None:
            await self._clock.sleep_until(deadline)
            self.fetch()  # what has come while this process was busy counts by when it came
            while not queue.empty():
                frame = queue.get_nowait()
                if frame is None:
                    for last in playout.end():
                        yield last
                    return
                playout.push(frame)
            for due in playout.due(self._clock.now()):
                yield due


async def _as_they_come(queue: asyncio.Queue[HeardFrame | None]) -> AsyncIterator[HeardFrame]:
    while (frame := await queue.get()) is not None:
        yield frame


def _nothing() -> None:
    """A line that gives each frame when it comes has nothing more."""
