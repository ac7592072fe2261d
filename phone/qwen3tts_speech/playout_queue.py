"""Queue of a call's utterances and sounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_pacer.gain import DUCK_DB, tenths
from qwen3tts_speech.link import SpeechLink
from qwen3tts_speech.sink import DuckMode, FrameSink

T = TypeVar("T", bound="QueuedPlayout")


class QueuedPlayout(Protocol):
    """Utterance or sound in progress or waiting."""

    number: int
    written: asyncio.Event
    """Set when all frames are with the sink."""

    live: bool
    """True if it is live sound, which gives way to the others."""

    @property
    def stopped(self) -> bool: ...

    def give_way(self) -> None: ...

    def stop(self) -> None: ...

    def change(self) -> None: ...

    async def settled(self, most_s: float | None = None) -> None: ...


class PlayoutQueue:
    """Queue, and its link, sink, format and clock."""

    def __init__(
        self,
        link: SpeechLink,
        sink: FrameSink,
        payload: Payload,
        *,
        ptime_ms: int,
        clock: Clock | None,
        stall_s: float | None,
    ) -> None:
        self.link = link
        self.sink = sink
        self.payload = payload
        self.ptime_ms = ptime_ms
        self.clock: Clock = clock or LoopClock()
        self.stall_s = stall_s
        self.closed = False
        self._number = 0
        self._queued: dict[int, QueuedPlayout] = {}
        self._ducked = False

    @property
    def speaking(self) -> bool:
        """True during or before utterances or sounds, except live sound."""
        return any(not each.live for each in self._queued.values())

    def duck(self, db: float = DUCK_DB) -> DuckMode:
        """Lower the speech by ``db`` (0 to 40) with the next frame; its positions go on.

        It lasts until `unduck`, an interruption, or the end of all speech. Without speech, and
        during live sound, there is no effect. Raises ValueError.
        """
        tenths(db)
        here = [each for each in self._queued.values() if not each.stopped]
        live = any(each.live and not each.written.is_set() for each in here)
        self._ducked = db > 0 and not live and not all(each.live for each in here)
        return self.sink.duck(db if self._ducked else 0.0)

    def unduck(self) -> None:
        if self._ducked:
            self.duck(0.0)

    def history_key(self, voice: str | None) -> str:
        return f"{self.link.url} {voice or ''}"

    async def turn_of(self, owner: QueuedPlayout) -> None:
        for earlier in [each for each in self._queued.values() if each.number < owner.number]:
            earlier.give_way()
        for earlier in [each for each in self._queued.values() if each.number < owner.number]:
            await earlier.written.wait()

    def next_to_write(self, item: QueuedPlayout) -> bool:
        return all(
            each.written.is_set() for each in self._queued.values() if each.number < item.number
        )

    def takes_live(self, before: int | None = None) -> bool:
        """Return whether live sound may begin, below number ``before``."""
        return not self.closed and all(
            each.stopped or (each.live and each.written.is_set())
            for each in self._queued.values()
            if before is None or each.number < before
        )

    def begins(self, make: Callable[[int], T]) -> T:
        self._number += 1
        each = make(self._number)
        self._queued[self._number] = each
        return each

    def ended(self, item: QueuedPlayout) -> None:
        self._queued.pop(item.number, None)
        if not self.speaking:
            self.unduck()
