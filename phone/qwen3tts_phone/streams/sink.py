"""Outbound audio of a stream: pacing, marks, flush."""

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
from qwen3tts_phone.audio.call_sink import PacerCallSink, SinkPacing
from qwen3tts_phone.audio.frames import Tap
from qwen3tts_phone.streams.carriers.adapter import Message, StreamAdapter
from qwen3tts_phone.streams.marks import PlayoutMarks
from qwen3tts_speech.sink import Played

PLAYOUT_DELAY_S = 0.06
"""Playout delay where no mark shows it: network and far end."""
MAX_PENDING_FRAMES = 1000
CLEAR_AFTER_S = 1.0
"""Time after the last playout in which a clear is still sent: the far end may be slow."""

Send = Callable[[Sequence[Message]], Awaitable[None]]
SendNow = Callable[[Sequence[Message]], None]


class StreamSink(PacerCallSink):
    """`CallSink` of a stream.

    A far end with a queue gets a bounded lead, marks, and a clear on interruption; one that plays
    on arrival gets paced frames, silence included.

    Args:
        lead_ms: largest queue at the far end, where that keeps the clock.
        mark_ms: audio between two marks.
        policy: fill policy, where this side keeps the clock.
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
            payload,
            SinkPacing(
                ptime_ms,
                PLAYOUT_DELAY_S,
                lead_ms=0 if ours else max(0, lead_ms - ptime_ms),
                continuous=ours,
            ),
            clock=clock,
            policy=(policy or FillingPolicy(ptime_s=ptime_ms / 1000)) if ours else None,
        )
        self.marks = PlayoutMarks(mark_ms / 1000, ptime_ms / 1000)
        self.sent_s = 0.0
        self.clears = 0
        self.stopped_by_far_end = False
        self.blocked_at: float | None = None
        """Begin of the current backpressure; None = no frame waits."""
        self._adapter = adapter
        self._send = send
        self._send_now = send_now
        self._pending: deque[tuple[bytes, float]] = deque(maxlen=MAX_PENDING_FRAMES)
        self._finished: set[int] = set()
        self._rest_until = 0.0
        self._waiting = False
        self._left = False
        self._far_end_event = asyncio.Event()

    # --- FrameSink

    def finish(self, context: int) -> None:
        super().finish(context)
        playout = self._open.get(context)
        if playout is None:
            return
        self._finished.add(context)
        # Its last frame is sent already.
        if playout.end and not self._pacer.core.queued and not self._waiting:
            self._send_now(self._mark(context, playout.end, playout.place_s + self._ptime_s))

    async def drained(self, context: int) -> Played:
        if context in self._open:
            with contextlib.suppress(PacerClosed):
                await self._pacer.drained(context)  # all sent, and the last slot has passed
                await self._confirmed(context)
        self._finished.discard(context)
        return await super().drained(context)

    def interrupt(self) -> None:
        now = self.clock.now()
        clear = self._adapter.clear() if self._may_have_queue(now) else ()
        if clear:
            self.clears += 1
            self._send_now(clear)
            self._rest_until = now + self._adapter.rest_after_clear_ms / 1000
        self.interruptions += 1
        self._feed_taps(now)
        self._pending.clear()
        self._silence(now, now if clear else max(now, self.quiet_at))
        self._positions.clear()
        self._finished.clear()
        self.marks.cut(now)
        if clear:
            self.quiet_at = now
        self._far_end_event.set()

    async def close(self) -> None:
        await super().close()
        self._far_end_event.set()

    # --- CallSink

    def tap(self, tap: Tap) -> None:
        self.follow()
        super().tap(tap)

    def follow(self) -> None:
        self._feed_taps(self.clock.now())

    def leave(self) -> None:
        self._left = True

    def gone(self) -> None:
        self.follow()
        self._far_end_event.set()

    # --- messages of the far end

    def alive(self, now: float) -> None:
        self.marks.alive(now)

    def mark_returned(self, name: str) -> bool:
        known = self.marks.returned(name, self.clock.now())
        if known:
            self._far_end_event.set()
        return known

    def flow(self, *, stop: bool) -> None:
        self.stopped_by_far_end = stop
        self._far_end_event.set()

    # --- inside

    async def _frame(self, payload: bytes, slot: Slot) -> bool | None:
        self.blocked_at = self.clock.now()
        try:
            return await self._send_frame(payload, slot)
        finally:
            self.blocked_at = None

    async def _send_frame(self, payload: bytes, slot: Slot) -> bool | None:
        before = self.interruptions
        frame = slot.frame
        if not self._adapter.owns_clock:
            if frame is not None:
                self._waiting = True
                try:
                    await self._wait_for_room()
                finally:
                    self._waiting = False
            if self.interruptions != before or self.closed:
                return None  # interrupted while it waited
        messages = list(self._adapter.audio(payload))
        if frame is not None:
            self.marks.sound()
            due_at = slot.deadline + self._ptime_s
            last = frame.context in self._finished and not self._pacer.core.queued
            if last or self.marks.wanted(frame.context, due_at):
                messages += self._mark(frame.context, frame.end, due_at)
            now = self.clock.now()
            self._count_frame()
            self.sent_s += self._ptime_s
            if self._taps:
                self._feed_taps(now)
                self._pending.append((payload, max(now, slot.deadline)))
        await self._send(messages)
        return None

    def _estimated_position(self, context: int) -> int:
        lag_s = self.marks.lag_s if self.marks.lag_s is not None else self._queued_s
        return self.marks.position(context, self._pacer.position(context, lag_s))

    def _mark(self, context: int, position: int, due_at: float) -> Sequence[Message]:
        marks = self.marks
        if not self._adapter.has_marks or not marks.usable or marks.is_marked(context, position):
            return ()
        return self._adapter.mark(marks.sent(context, position, due_at))

    async def _wait_for_room(self) -> None:
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
            await self._wait_for_far_end(until)

    async def _confirmed(self, context: int) -> None:
        while context in self._open and not self.closed:
            self.marks.give_up(self.clock.now())
            until = self.marks.lost_at(context)
            if until is None:
                return
            await self._wait_for_far_end(until)

    async def _wait_for_far_end(self, until: float | None) -> None:
        self._far_end_event.clear()
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._far_end_event.wait())]
        if until is not None:
            waits.append(asyncio.ensure_future(self.clock.sleep_until(until)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    def _may_have_queue(self, now: float) -> bool:
        if self._adapter.owns_clock or self.first_at is None or self._left:
            return False
        return self.marks.out > 0 or now < self.quiet_at + CLEAR_AFTER_S

    def _feed_taps(self, now: float) -> None:
        while self._pending and self._pending[0][1] <= now:
            payload, at = self._pending.popleft()
            for tap in list(self._taps):
                tap(payload, at)
