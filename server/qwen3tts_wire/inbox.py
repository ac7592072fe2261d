"""What came of a context and was not yet taken by its reader."""

from __future__ import annotations

import asyncio
from collections import deque

from qwen3tts_wire.events import Audio, Event
from qwen3tts_wire.formats import AudioFormat


class Inbox:
    """Events in order, for one reader."""

    def __init__(self, form: AudioFormat) -> None:
        self._width = form.bytes_per_sample
        self._events: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self.samples = 0
        """Samples that wait in it."""

    def __bool__(self) -> bool:
        return bool(self._events)

    def put(self, event: Event) -> None:
        """One more."""
        self._events.append(event)
        if isinstance(event, Audio):
            self.samples += self.count(event)
        self._arrived.set()

    def take(self) -> Event:
        """The next one; there is one."""
        event = self._events.popleft()
        if isinstance(event, Audio):
            self.samples -= self.count(event)
        return event

    def take_back(self, samples: int) -> int:
        """Drop the last samples, as far as they wait here; returns how many those were."""
        back = 0
        kept: list[Event] = []
        while back < samples and self._events:
            event = self._events.pop()
            if isinstance(event, Audio):
                out = min(samples - back, self.count(event))
                back += out
                if left := event.pcm[: len(event.pcm) - out * self._width]:
                    kept.append(Audio(left, event.offset, event.received_at, event.clause_start))
            else:
                kept.append(event)
        self._events.extend(reversed(kept))
        self.samples -= back
        return back

    def clear(self) -> None:
        """Drop all of it."""
        self._events.clear()
        self.samples = 0
        self._arrived.set()

    def count(self, event: Audio) -> int:
        """Samples of a piece."""
        return len(event.pcm) // self._width

    def wake(self) -> None:
        """The reader is to look again."""
        self._arrived.set()

    async def wait(self) -> None:
        """Until something comes, or the reader is woken."""
        self._arrived.clear()
        await self._arrived.wait()
