"""Where the line meets the media process: frames into a call's ring, facts about them out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from qwen3tts_pacer.frame import Frame
from qwen3tts_pacer.memory import ContextSent
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_speech.sink import Interruption, Played

Tap = Callable[[bytes, float], None]
"""Takes the payload of a frame that went out, and when (seconds of the monotonic clock)."""


class RtpSink:
    """A `FrameSink` on a `MediaLeg`; one per call."""

    def __init__(self, leg: MediaLeg, ptime_ms: int, tap: Tap | None = None) -> None:
        self._leg = leg
        self._ptime_s = ptime_ms / 1000
        self._tap = tap
        self._untapped: dict[int, deque[bytes]] = {}
        self._tapped: dict[int, int] = {}
        self._over: dict[int, asyncio.Event] = {}
        self._epoch: int | None = None
        """The last interruption."""
        self._epochs: list[int] = []
        """Those that took something, and of which the facts are not known yet."""
        self._cut: set[int] = set()
        """The contexts of all interruptions."""
        self._stopped: dict[int, Played] = {}
        """What is known of them."""
        self.last_at: float | None = None
        """When the last utterance that was played to its end went out, seconds."""

    def begin(self, context: int, key: str) -> None:
        """A context is about to be written; ``key`` names its voice and server."""
        self._leg.begin(context, key=key)
        self._over[context] = asyncio.Event()
        self._untapped[context] = deque()
        self._tapped[context] = 0

    def write(self, frames: Sequence[Frame]) -> int:
        """Queue frames in the ring; how many were accepted."""
        accepted = self._leg.write(frames)
        if self._tap is not None and accepted:
            waiting = self._untapped.get(frames[0].context)
            if waiting is not None:
                waiting.extend(frame.payload for frame in frames[:accepted])
        return accepted

    async def room(self) -> None:
        """Return when the ring has room; MediaLost or LegClosed when it never will."""
        await self._leg.room()

    def finish(self, context: int) -> None:
        """No more frames of this context follow."""
        self._leg.finish(context)

    async def drained(self, context: int) -> Played:
        """Return when its last frame has gone out.

        Raises:
            LegClosed: the call ended before that.
            MediaLost: the media process ended.
        """
        over = self._over.get(context)
        if over is not None:
            await over.wait()
            self._leg.check()
        return self._played(context)

    def position(self, context: int) -> int:
        """Samples of the context at the caller's ear by now."""
        return self._leg.position(context)

    def interrupt(self) -> None:
        """Fall silent with the next frame; takes no time."""
        if self._leg.over or self._leg.remote is None:
            return  # nothing can have been sent
        self._epoch = self._leg.interrupt()
        if not self._cut.issuperset(self._over):
            self._cut.update(self._over)
            self._epochs.append(self._epoch)

    async def interrupted(self) -> Interruption:
        """What the media process says it dropped, once it has; by several interruptions, too."""
        if self._epoch is None or self._leg.over:
            return self._ended_by_the_call()
        at = (await self._leg.dropped((self._epochs or [self._epoch])[0])).at
        while self._epochs:
            epoch = self._epochs[0]
            dropped = await self._leg.dropped(epoch)
            if epoch not in self._epochs:
                continue  # another utterance has waited for the same
            self._epochs.remove(epoch)
            self.follow()
            for each in dropped.contexts:
                self._stopped[each.context] = self._played(each.context, each.frames)
                self._forget(each.context)
        return Interruption(at=at, silent_at=at, played=dict(self._stopped))

    def context_played(self, context: int) -> None:
        """The media process says that a context's last frame is out."""
        self.follow()
        self._forget(context)
        self.last_at = self._played(context).last_at

    def closed(self) -> None:
        """The leg is over: whoever waits for its end learns that."""
        self.follow()
        for context in list(self._over):
            self._forget(context)

    def follow(self) -> None:
        """Give the tap what has gone out since the last time."""
        if self._tap is None:
            return
        for context, waiting in self._untapped.items():
            sent = self._leg.sent(context)
            if sent is None:
                continue
            new = sent.frames - self._tapped[context]
            self._tapped[context] = sent.frames
            last = sent.last_ns / 1e9
            for index in range(min(new, len(waiting))):
                self._tap(waiting.popleft(), last - (new - 1 - index) * self._ptime_s)

    def _ended_by_the_call(self) -> Interruption:
        ended = {context: self._played(context) for context in self._cut}
        return Interruption(at=0.0, played=ended | self._stopped)

    def _forget(self, context: int) -> None:
        self._untapped.pop(context, None)
        self._tapped.pop(context, None)
        over = self._over.pop(context, None)
        if over is not None:
            over.set()

    def _played(self, context: int, dropped: int = 0) -> Played:
        sent: ContextSent | None = self._leg.sent(context)
        if sent is None:
            return Played(position=0, dropped=dropped)
        return Played(
            position=sent.end,
            dropped=dropped,
            first_at=_seconds(sent.first_ns),
            first_audible_at=_seconds(sent.audible_ns),
            last_at=_seconds(sent.last_ns),
            starvations=sent.starvations,
            starved_s=sent.starved_slots * self._ptime_s,
            longest_gap_s=sent.longest_slots * self._ptime_s,
        )


def _seconds(at_ns: int) -> float | None:
    return at_ns / 1e9 if at_ns else None
