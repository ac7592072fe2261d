"""Where a stream's speech goes: paced frames to a far end, right behind or a little ahead of time.

Built on `PacerSink`. For a far end that plays from a queue: a bounded lead, marks that tell what
was played, a clear that goes out at once. For one that plays each frame as it comes: one frame and
then the next, silence between utterances.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.audio_pacer import PacerClosed
from qwen3tts_pacer.clock import Clock
from qwen3tts_pacer.policy import Filling, FillingPolicy
from qwen3tts_pacer.slot import Slot
from qwen3tts_phone.audio.frames import Tap
from qwen3tts_phone.streams.adapter import Message, StreamAdapter
from qwen3tts_phone.streams.marks import PlayoutMarks
from qwen3tts_speech.sink import PacerSink, Played

QUEUED_S = 0.06
"""What lies between a frame's sending and the ear, where no mark tells: network and far end."""
MAX_PENDING_FRAMES = 1000
"""Frames that taps are told of at most when nobody has looked for long."""
CLEAR_AFTER_S = 1.0
"""A clear is sent so long after the last frame should have been heard: the far end may be slow."""

Send = Callable[[Sequence[Message]], Awaitable[None]]
"""Hands messages to the connection, in order; returns when it takes more. Raises OSError."""
SendNow = Callable[[Sequence[Message]], None]
"""Hands messages to the connection before it returns; harmless when that is gone."""


class StreamSink(PacerSink):
    """A `CallSink` on a stream; one per call.

    Args:
        adapter: makes messages of frames.
        payload: what frames hold.
        send: takes messages that may wait.
        send_now: takes those that may not.
        lead_ms: how much lies at the far end at most, where that keeps the clock.
        mark_ms: how much is sent between two marks.
        policy: decides about waits, where this side keeps the clock.
    """

    def __init__(
        self,
        adapter: StreamAdapter,
        payload: Payload,
        send: Send,
        send_now: SendNow,
        *,
        lead_ms: int = 240,
        mark_ms: int = 100,
        clock: Clock | None = None,
        policy: Filling | None = None,
    ) -> None:
        ptime_ms = adapter.ptime_ms
        ours = adapter.owns_clock
        super().__init__(
            self._frame,
            silence=payload.silent_frame(ptime_ms),
            ptime_ms=ptime_ms,
            lead_ms=0 if ours else max(0, lead_ms - ptime_ms),
            queued_s=QUEUED_S,
            clock=clock,
            policy=(policy or FillingPolicy(ptime_s=ptime_ms / 1000)) if ours else None,
            continuous=ours,
        )
        self.marks = PlayoutMarks(mark_ms / 1000, ptime_ms / 1000)
        self.sent_frames = 0
        """Frames of speech that were sent."""
        self.sent_s = 0.0
        """The sound in them."""
        self.first_at: float | None = None
        """When the first frame of speech was sent."""
        self.clears = 0
        """How often the far end was told to drop what it had queued."""
        self.stopped_by_far_end = False
        """Whether the far end wants no more for now."""
        self.blocked_at: float | None = None
        """Since when a frame waits until the far end takes it; None = none does."""
        self._adapter = adapter
        self._send = send
        self._send_now = send_now
        self._last_at: float | None = None
        self._taps: list[Tap] = []
        self._pending: deque[tuple[bytes, float]] = deque(maxlen=MAX_PENDING_FRAMES)
        self._heard: dict[int, int] = {}  # positions never go back
        self._finished: set[int] = set()
        self._rest_until = 0.0
        self._waiting = False
        """Whether a frame waits until the far end takes it."""
        self._left = False
        """Whether the far end has left: it need not be told to drop anything."""
        self._moved = asyncio.Event()
        """Set when a mark came, the far end takes more, or all is over."""

    # --- FrameSink

    def finish(self, context: int) -> None:
        """No more frames of this context will be written."""
        super().finish(context)
        going = self._going.get(context)
        if going is None:
            return
        self._finished.add(context)
        # Where its last frame is out already, and does not wait for the far end.
        if going.end and not self._pacer.core.queued and not self._waiting:
            self._send_now(self._mark(context, going.end, going.place_s + self._ptime_s))

    async def drained(self, context: int) -> Played:
        """Return when the far end has played the context's last frame, or it was dropped."""
        if context in self._going:
            with contextlib.suppress(PacerClosed):
                await self._pacer.drained(context)  # all sent, and its time has passed
                await self._passed(context)
        self._finished.discard(context)
        played = await super().drained(context)
        if played.last_at is not None and not played.dropped:
            self._last_at = self.clock.now()
        self._heard.pop(context, None)
        return played

    def position(self, context: int) -> int:
        """Samples of the context that are at the caller's ear by now."""
        over = self._over.get(context)
        if over is not None:
            return over.position
        lag_s = self.marks.lag_s if self.marks.lag_s is not None else self._queued_s
        reckoned = self._pacer.position(context, lag_s)
        position = max(self._heard.get(context, 0), self.marks.position(context, reckoned))
        self._heard[context] = position
        return position

    def interrupt(self) -> None:
        """Fall silent: the far end is told first of all, and not one more frame is sent."""
        now = self.clock.now()
        clear = self._adapter.clear() if self._may_be_queued(now) else ()
        if clear:
            self.clears += 1
            self._send_now(clear)
            self._rest_until = now + self._adapter.rest_after_clear_ms / 1000
        self.interruptions += 1
        self._tell(now)
        self._pending.clear()
        self._silence(now, now if clear else max(now, self.quiet_at))
        self._heard.clear()
        self._finished.clear()
        self.marks.cut(now)
        if clear:
            self.quiet_at = now
        self._moved.set()

    async def close(self) -> None:
        """Fall silent for good."""
        await super().close()
        self._moved.set()

    # --- CallSink

    @property
    def last_at(self) -> float | None:
        """When the last utterance that was played to its end went out, seconds."""
        return self._last_at

    def tap(self, tap: Tap) -> None:
        """``tap`` is given each frame of speech from now on, when it is heard."""
        self.follow()
        if tap not in self._taps:
            self._taps.append(tap)

    def untap(self, tap: Tap) -> None:
        """No more of them."""
        if tap in self._taps:
            self._taps.remove(tap)

    def follow(self) -> None:
        """Give the taps what has been played by now."""
        self._tell(self.clock.now())

    def leave(self) -> None:
        """The far end has left: from now on an interruption has nobody to tell."""
        self._left = True

    def gone(self) -> None:
        """The stream is gone."""
        self.follow()
        self._moved.set()

    @property
    def skipped_slots(self) -> int:
        """Places in time that passed unsent, because this machine or the far end was late."""
        return self._pacer.core.skipped_slots

    @property
    def starvations(self) -> int:
        """How often an utterance ran dry in its middle."""
        return self._pacer.core.starvations

    # --- what the far end tells

    def alive(self, now: float) -> None:
        """Anything came from the far end."""
        self.marks.alive(now)

    def mark_returned(self, name: str) -> bool:
        """A mark came back; False: it is none that is under way."""
        known = self.marks.returned(name, self.clock.now())
        if known:
            self._moved.set()
        return known

    def flow(self, *, stop: bool) -> None:
        """The far end wants no more for now, or takes it again."""
        self.stopped_by_far_end = stop
        self._moved.set()

    # --- inside

    async def _frame(self, payload: bytes, slot: Slot) -> bool | None:
        self.blocked_at = self.clock.now()
        try:
            return await self._passed_on(payload, slot)
        finally:
            self.blocked_at = None

    async def _passed_on(self, payload: bytes, slot: Slot) -> bool | None:
        before = self.interruptions
        frame = slot.frame
        if not self._adapter.owns_clock:
            if frame is not None:
                self._waiting = True
                try:
                    await self._free()
                finally:
                    self._waiting = False
            if self.interruptions != before or self.closed:
                return None  # what was interrupted while it waited is never sent
        messages = list(self._adapter.audio(payload))
        if frame is not None:
            self.marks.sound()
            due_at = slot.deadline + self._ptime_s
            last = frame.context in self._finished and not self._pacer.core.queued
            if last or self.marks.wanted(frame.context, due_at):
                messages += self._mark(frame.context, frame.end, due_at)
            now = self.clock.now()
            self.first_at = now if self.first_at is None else self.first_at
            self.sent_frames += 1
            self.sent_s += self._ptime_s
            if self._taps:
                self._tell(now)
                self._pending.append((payload, max(now, slot.deadline)))
        await self._send(messages)
        return None

    def _mark(self, context: int, position: int, due_at: float) -> Sequence[Message]:
        """The messages of a mark; none where one stands there or the far end has no marks."""
        marks = self.marks
        if not self._adapter.has_marks or not marks.usable or marks.is_marked(context, position):
            return ()
        return self._adapter.mark(marks.sent(context, position, due_at))

    async def _free(self) -> None:
        """Wait until the far end takes another frame, or all is interrupted."""
        before = self.interruptions
        while self.interruptions == before and not self.closed:
            now = self.clock.now()
            self.marks.give_up(now)
            until = self.marks.full_until(now, self._pacer.core.lead_s)
            if self._rest_until > now:
                until = max(until or 0.0, self._rest_until)
            if self.stopped_by_far_end:
                until = None
            elif until is None:
                return
            await self._await_move(until)

    async def _passed(self, context: int) -> None:
        """Its last mark has come back, or will not."""
        while context in self._going and not self.closed:
            self.marks.give_up(self.clock.now())
            until = self.marks.lost_at(context)
            if until is None:
                return
            await self._await_move(until)

    async def _await_move(self, until: float | None) -> None:
        """Wait for news of the far end, to ``until`` at most."""
        self._moved.clear()
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._moved.wait())]
        if until is not None:
            waits.append(asyncio.ensure_future(self.clock.sleep_until(until)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    def _may_be_queued(self, now: float) -> bool:
        """Whether the far end may have something of ours that it has not played."""
        if self._adapter.owns_clock or self.first_at is None or self._left:
            return False
        return self.marks.out > 0 or now < self.quiet_at + CLEAR_AFTER_S

    def _tell(self, now: float) -> None:
        """Give the taps what has been played by ``now``."""
        while self._pending and self._pending[0][1] <= now:
            payload, at = self._pending.popleft()
            for tap in list(self._taps):
                tap(payload, at)
