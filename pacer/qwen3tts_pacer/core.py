"""Pacer core: frames in, at most one slot per place on an exact grid out. No I/O, no clock.

Slot n belongs to ``origin + n * ptime``, by multiplication, so lateness never adds up. A late
caller gets one slot, not the ones it missed: those are skipped, the timestamp moves on, and their
frames follow on the grid. The state machine is in states.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from qwen3tts_pacer.frame_queue import Dropped, FrameQueue
from qwen3tts_pacer.policy import Filling, FillingPolicy
from qwen3tts_pacer.slot import Frame, Kind, Slot
from qwen3tts_pacer.states import Move, PacerError, PacerFull, State, after

NEVER = math.inf
EPSILON_S = 1e-6  # sums of floats differ by less


class PacerCore:
    """Pacer of one call.

    Args:
        ptime_s: packet time.
        policy: decides when an utterance may start, and resume after an underrun.
        silence: payload of silence.
        continuous: send silence between utterances.
        capacity: bound of the queue, frames.
        lead_s: how far ahead of its place a slot may be sent, for sinks with a buffer; up to that
            much goes out in one batch at the start.
        rephase: let each talkspurt begin immediately, off the grid of the one before; not with
            ``continuous``.
        late_s: how late a slot is still sent, for receivers that play by timestamps; what was late
            is caught up with. Beyond it, and beyond one ptime, slots are skipped.
    """

    def __init__(
        self,
        ptime_s: float = 0.02,
        policy: Filling | None = None,
        *,
        silence: bytes,
        continuous: bool = True,
        capacity: int = 3000,
        lead_s: float = 0.0,
        rephase: bool = False,
        late_s: float = 0.0,
    ) -> None:
        if not 0.001 <= ptime_s <= 1.0:
            raise ValueError(f"ptime_s={ptime_s} is not between 0.001 and 1 second")
        if capacity < 1 or not 0.0 <= lead_s <= 10.0:
            raise ValueError(f"capacity={capacity} must be positive, lead_s={lead_s} 0 to 10 s")
        if not 0.0 <= late_s <= 1.0:
            raise ValueError(f"late_s={late_s} is not between 0 and 1 second")
        if rephase and continuous:
            raise ValueError("rephase needs continuous=False: an unbroken stream has one phase")
        self.policy: Filling = policy or FillingPolicy(ptime_s=ptime_s)
        self.ptime_s = ptime_s
        self._queue = FrameQueue(self.policy, capacity)
        self._frames = self._queue.frames  # the same object, for each slot asks for it
        self.sent_frames = 0
        self.sent_silence = 0
        self.skipped_slots = 0
        """Places on the grid that passed unsent because the caller was late."""
        self.starvations = 0
        """Underruns in mid-utterance that ended in more speech."""
        self.starved_slots = 0
        self.drained = self._queue.drained
        """Contexts fully sent, in order; the caller takes them out."""
        self.silence = silence
        self.continuous = continuous
        self._rephase = rephase
        self._lead = lead_s
        self.lead_s = lead_s
        self._half = ptime_s / 2
        self._late = late_s
        self._state = State.IDLE
        self._playing = -1  # whose frame was sent last
        self._missed = 0  # slots that it lost since then: underrun, or late by whole packets
        self._base = 0.0  # where the timestamps begin
        self._origin = 0.0  # of the grid; equals the base unless rephased
        self._started = False
        self._tick = 0  # the next slot
        self._sent = -1  # the last slot given out; -1 before the first
        self._deadline = NEVER
        self._not_before = -NEVER  # the spacing after a slot that went out late
        self._ready_at = NEVER
        self._last: Frame | None = None  # the frame in the last slot; None = it was not speech
        self._mark = not continuous  # the next packet follows other packets, or none at all
        self._underrun_tick = 0

    @property
    def state(self) -> State:
        return self._state

    @property
    def started(self) -> bool:
        """Whether the grid has begun, by `start` or the first `begin`."""
        return self._started

    @property
    def sounding(self) -> bool:
        """True if the last slot carried a frame."""
        return self._last is not None

    @property
    def queued(self) -> int:
        return len(self._frames)

    def queued_of(self, context: int) -> int:
        return self._queue.queued_of(context)

    @property
    def refused_frames(self) -> int:
        """Frames that came late for an interrupted context."""
        return self._queue.refused_frames

    @property
    def capacity(self) -> int:
        return self._queue.capacity

    @property
    def room(self) -> int:
        return self._queue.capacity - len(self._frames)

    def next_deadline(self) -> float | None:
        """When to call `due` next, seconds; None = after another call."""
        return None if self._deadline == NEVER else self._deadline

    def start(self, now: float, origin: float | None = None) -> None:
        """Start the grid: slot 0 lies at ``origin`` (default ``now``)."""
        if self._started:
            raise PacerError("start() was called before")
        self._started = True
        self._base = self._origin = now if origin is None else origin
        if self.continuous:
            self._deadline = self._origin - self._lead

    def begin(self, context: int, now: float, key: str = "") -> bool:
        """Begin an utterance; ``key`` names its voice and server for the policy.

        Numbers rise within a call. Return False if an interruption covers the number.
        """
        if self._queue.interrupted(context):
            return False
        self._queue.begin(context, key)
        if not self._started:
            self.start(now)
        return True

    def push(self, frames: Sequence[Frame], now: float) -> int:
        """Queue frames that arrived at ``now``; return how many were taken.

        Frames of interrupted contexts are refused and counted. Those of a later context end the
        turn of the ones before. A batch of several contexts is taken up to the first error.
        """
        if not frames:
            return 0
        if len(self._frames) + len(frames) > self.capacity:
            raise PacerFull(f"{len(frames)} frames, room for {self.room}: wait for room")
        if frames[0].context == frames[-1].context:
            return self._push_one(frames, now)
        taken = 0
        first = 0
        for index in range(1, len(frames) + 1):
            if index == len(frames) or frames[index].context != frames[first].context:
                taken += self._push_one(frames[first:index], now)
                first = index
        return taken

    def finish(self, context: int, now: float) -> None:
        if self._queue.interrupted(context) or not self._queue.finish(context):
            return
        if context == self._queue.newest:
            self._move(Move.FINISH)
            if not self._frames and self._state is State.DRAINING:
                self._move(Move.EMPTY)
        self._arm(now)

    def interrupt(self, now: float, through: int | None = None) -> Dropped:
        """Fall silent: the next slot is the fade (if speech was playing), then silence.

        All contexts begun so far, and those up to ``through``, are ended; their later frames are
        refused.
        """
        dropped = self._queue.interrupt(through)
        self._playing = -1
        self._move(Move.INTERRUPT)
        self._arm(now)
        return Dropped(now, dropped)

    def hold(self, now: float, *, silence: bool = False) -> None:
        """Stop sending and keep the queue (call on hold); not twice.

        ``silence``: the fade is still sent, and in an unbroken stream silence after it.
        """
        self._move(Move.HOLD)
        if not silence:
            self._deadline = NEVER

    def resume(self, now: float) -> None:
        """Continue after `hold`; the first packet has the marker."""
        self._move(Move.RESUME)
        if self._frames:
            self._move(Move.FRAMES)
            self._ready_at = self._queue.ready_at(self._playing, self.ptime_s, now)
            if self._queue.newest_finished():
                self._move(Move.FINISH)
        if self._started and self.continuous:
            self._aim(now)
        self._arm(now)

    def due(self, now: float) -> Slot | None:
        """Return the slot to send now, or None. With a lead, call again until None."""
        if now < self._deadline:
            return None
        ptime = self.ptime_s
        tick = self._tick
        at = self._origin + tick * ptime
        late = now - at
        if late >= ptime - EPSILON_S and late >= self._late:
            tick = self._skip(now)
            at = self._origin + tick * ptime
            late = now - at
        contiguous = tick == self._sent + 1
        frame: Frame | None = None
        frames, state = self._frames, self._state
        if contiguous and self._playing < 0 and self._last is not None:
            pass  # interrupted in mid-speech: the fade goes first
        elif (
            (state is State.FILLING or state is State.STARVED)
            and frames
            and max(now, at) >= self._ready_at - EPSILON_S
        ):
            self._ready(tick)
            frame = self._queue.take()
        elif state is State.PLAYING or state is State.DRAINING:
            if frames:
                following = frames[0].context
                if following == self._playing or self._may_follow(max(now, at), now):
                    frame = self._queue.take()
            elif now < at:
                self._deadline = at  # the lead is being used up; a frame may still come in time
                return None
            else:
                self._on_underrun(tick)
        if frame is not None:
            kind = Kind.SPEECH
            payload = frame.payload
            missed = 0
            if self._playing != frame.context:
                self._playing = frame.context
            elif not contiguous or self._last is None:
                payload = frame.head or payload
                missed = self._missed
            self._missed = 0
            self._last = frame
            self.sent_frames += 1
            if not frames and self._state is State.DRAINING:
                self._move(Move.EMPTY)
        else:
            kind = Kind.SILENCE
            payload = self.silence
            missed = 0
            last = self._last
            self._last = None
            if last is not None and last.tail is not None and contiguous:
                kind = Kind.FADE
                payload = last.tail
            elif not self.continuous:
                self._tick = tick
                self._sleep(now)
                return None
            self.sent_silence += 1
        # RFC 3551 section 4.1: the marker opens a talkspurt, that is, follows a time in which
        # packets were not sent one after the other; without silence suppression it is 0. A break
        # in the sending (skipped slots, hold) moves the timestamp and must show the marker, too.
        if self._sent < 0:
            slot = Slot(payload, kind, self._mark, 0, frame, at, missed)
        else:
            marker = self._mark or not contiguous
            slot = Slot(payload, kind, marker, tick - self._sent, frame, at, missed)
        self._mark = False
        self._sent = tick
        self._tick = tick = tick + 1
        deadline = self._origin + tick * ptime - self._lead
        # Never closer than half a ptime after a slot that went out late.
        if late > self._half and deadline < now + self._half:
            self._not_before = deadline = now + self._half
        self._deadline = deadline
        return slot

    def _push_one(self, frames: Sequence[Frame], now: float) -> int:
        if not self._queue.push(frames, now):
            return 0
        state = self._state
        if state is not State.PLAYING:
            self._move(Move.FRAMES)
            state = self._state
            if state is State.FILLING or state is State.STARVED:
                self._ready_at = self._queue.ready_at(self._playing, self.ptime_s, now)
            self._arm(now)
        elif self._deadline > now and self._lead:
            self._deadline = max(now, self._origin + self._tick * self.ptime_s - self._lead)
        return len(frames)

    def _ready(self, tick: int) -> None:
        if self._state is State.STARVED and self._frames[0].context == self._playing:
            self.starvations += 1
            self.starved_slots += tick - self._underrun_tick
            self._missed += tick - self._underrun_tick
        self._move(Move.READY)

    def _on_underrun(self, tick: int) -> None:
        self._move(Move.UNDERRUN)
        self._underrun_tick = tick
        self.policy.starved(self._playing)

    def _may_follow(self, when: float, now: float) -> bool:
        ready_at = self._queue.ready_at(self._playing, self.ptime_s, now)
        if when >= ready_at - EPSILON_S:
            return True
        self._move(Move.WAIT)
        self._ready_at = ready_at
        return False

    def _move(self, move: Move) -> None:
        self._state = after(self._state, move)

    def _skip(self, now: float) -> int:
        tick = self._tick_at(now)
        self.skipped_slots += tick - self._tick
        if self._last is not None:
            self._missed += tick - self._tick
        self._tick = tick
        return tick

    def _tick_at(self, now: float) -> int:
        tick = int((now - self._origin) / self.ptime_s)
        while self._origin + (tick + 1) * self.ptime_s <= now:
            tick += 1
        while self._origin + tick * self.ptime_s > now:
            tick -= 1
        return max(tick, self._sent + 1)

    def _aim(self, when: float) -> None:
        tick = self._tick_at(when)
        if self._origin + tick * self.ptime_s < when - EPSILON_S:
            tick += 1
        self._tick = tick
        self._deadline = max(self._origin + tick * self.ptime_s - self._lead, self._not_before)

    def _arm(self, now: float) -> None:
        if self.continuous or not self._started or self._state is State.HELD:
            return
        if self._deadline != NEVER and self._last is not None:
            return  # the grid is running
        self._sleep(now)

    def _sleep(self, now: float) -> None:
        if not self._frames or self._state is State.HELD:
            self._deadline = NEVER
            return
        waiting = self._state is State.FILLING or self._state is State.STARVED
        when = max(now, self._ready_at) if waiting else now
        if self._rephase and self._tick_at(when) > self._sent + 1:
            whole = math.floor((when - self._base) / self.ptime_s)
            if whole > self._sent:
                self._origin = when - whole * self.ptime_s
        self._aim(when)
