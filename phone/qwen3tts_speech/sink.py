"""Sinks of a call's frames: the protocol, and one over an AudioPacer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from qwen3tts_pacer.audio_pacer import AudioPacer, PacerClosed, SinkFailed
from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_pacer.core import PacerCore
from qwen3tts_pacer.gain import Attenuator, scale_of, tenths
from qwen3tts_pacer.policy import Filling, FillingPolicy, FillingSettings
from qwen3tts_pacer.slot import Frame, Kind, Slot
from qwen3tts_pacer.states import State
from qwen3tts_pacer.timeline import ContextPlayout


@dataclass(frozen=True, slots=True)
class Played:
    """Playout of one finished context; monotonic seconds."""

    position: int
    """Samples of the context's rate that were sent."""
    dropped: int = 0
    first_at: float | None = None
    first_audible_at: float | None = None
    last_at: float | None = None
    starvations: int = 0
    starved_s: float = 0.0
    longest_gap_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Interruption:
    """Result of an interruption."""

    at: float
    """Time of effect, seconds, monotonic."""
    silent_at: float | None = None
    """Time of the first silent frame."""
    played: Mapping[int, Played] = field(default_factory=dict)


DuckMode = Literal["duck", "hold"]
"""Effect of ducking: speech is lower, or pauses, for frames of its codec cannot be scaled."""


class FrameSink(Protocol):
    """Sink that sends encoded frames on an exact clock.

    Contexts are rising numbers, written one after the other.
    """

    changes_codec: bool
    """True if its codec may change: then PCM is kept until it was played."""

    def begin(self, context: int, key: str) -> None:
        """Begin a context; ``key``: voice and server, for the filling policy."""

    def write(self, frames: Sequence[Frame]) -> int:
        """Accept frames while there is room; return how many."""

    async def room(self) -> None: ...

    def finish(self, context: int) -> None: ...

    async def drained(self, context: int) -> Played: ...

    def position(self, context: int) -> int: ...

    def waiting_s(self, context: int) -> float: ...

    def resume_at(self, context: int) -> int | None:
        """Return the position from which a change of the codec wants the context again.

        None = the sink has what was written.
        """

    def interrupt(self) -> None:
        """Fall silent with the next frame, synchronously."""

    async def interrupted(self) -> Interruption: ...

    def duck(self, db: float) -> DuckMode:
        """Lower the speech by ``db`` with the next frame; 0 = full level.

        An interruption resets it. Raises ValueError: not 0 to 40.
        """


log = logging.getLogger(__name__)

CAPACITY = 3000
"""Frames that may wait: a minute."""
KEPT = 64
NO_WAIT = FillingSettings(pinned_s=0.0)
"""No wait before the first frame: the receiver's buffer fills behind it."""

Write = Callable[[bytes, Slot], Awaitable[bool | None]]
"""Takes one frame; False = refused, with what would follow."""


class _OpenContext(ContextPlayout[float]):
    """Playout of an open context; seconds of the clock."""

    __slots__ = ("place_s", "resumed")

    def __init__(self) -> None:
        super().__init__()
        self.place_s = 0.0
        """Place of the last frame on the pacer's grid."""
        self.resumed = False
        """Held since then, so that the gap is no underrun."""

    def sent_for(self, frame: Frame, place_s: float, now: float, ptime_s: float) -> None:
        gap = place_s - self.place_s - ptime_s if self.frames and not self.resumed else 0.0
        self.resumed = False
        self.sent(frame, max(now, place_s), gap if gap > ptime_s / 2 else 0.0)
        self.place_s = place_s

    def played(self, position: int, dropped: int = 0) -> Played:
        return Played(
            position=position,
            dropped=dropped,
            first_at=self.first_at,
            first_audible_at=self.audible_at,
            last_at=self.last_at,
            starvations=self.starvations,
            starved_s=self.missed,
            longest_gap_s=self.longest,
        )


class PacerSink:
    """`FrameSink` in this process: an AudioPacer at most ``lead_ms`` ahead of playout.

    For receivers with a buffer of their own: frames handed over can often not be taken back, so as
    few as possible are. A ``write`` that returns False, or raises, stops everything as `interrupt`
    does; then ``on_refused`` is called, once.

    Args:
        write: takes a frame; one at a time, in order.
        silence: payload of silence.
        ptime_ms: packet time.
        lead_ms: lead of the hand-over over playout.
        queued_s: delay of the receiver, seconds.
        clock: source of time.
        on_refused: called when a frame was refused.
        policy: filling policy.
        continuous: hand over silence as well, from :meth:`start` on, for a receiver without a
            clock.
        late_ms: how late a frame is still handed over, rather than its place skipped.
    """

    changes_codec = False

    def __init__(
        self,
        write: Write,
        *,
        silence: bytes,
        ptime_ms: int = 20,
        lead_ms: int = 60,
        queued_s: float = 0.0,
        clock: Clock | None = None,
        on_refused: Callable[[], None] | None = None,
        policy: Filling | None = None,
        continuous: bool = False,
        late_ms: int = 0,
    ) -> None:
        ptime_s = ptime_ms / 1000
        self.clock: Clock = clock or LoopClock()
        self.error: BaseException | None = None
        """Error of the last ``write`` that failed."""
        self.interruptions = 0
        self.quiet_at = self.clock.now()
        """Playout end of the last frame handed over, seconds of the clock."""
        self.closed = False
        self._write_frame = write
        self._on_refused = on_refused
        self._ptime_s = ptime_s
        self._queued_s = queued_s
        self._continuous = continuous
        core = PacerCore(
            ptime_s,
            policy or FillingPolicy(NO_WAIT, ptime_s=ptime_s),
            silence=silence,
            continuous=continuous,
            capacity=CAPACITY,
            lead_s=lead_ms / 1000,
            rephase=not continuous,
            late_s=late_ms / 1000,
        )
        self._pacer = AudioPacer(self._hand_over, core, self.clock)
        self._started = False
        self._open: dict[int, _OpenContext] = {}
        self._over: dict[int, Played] = {}
        self._cut_off = False
        """Interrupted, and no speech since: the fade is over already."""
        self._stopped: Interruption | None = None
        self._attenuator: Attenuator | None = None
        self._held = False
        """Held instead of lowered."""

    # --- FrameSink

    def begin(self, context: int, key: str) -> None:
        if self.closed:
            self._keep(context, Played(0))
            return
        self.start()
        self._open[context] = _OpenContext()
        self._pacer.begin(context, key)

    def write(self, frames: Sequence[Frame]) -> int:
        if not frames or frames[0].context not in self._open:
            return len(frames)
        accepted = min(len(frames), self._pacer.core.room)
        self._pacer.push(frames[:accepted])
        return accepted

    async def room(self) -> None:
        with contextlib.suppress(PacerClosed):
            if not self.closed:
                await self._pacer.room()

    def finish(self, context: int) -> None:
        if context in self._open:
            self._pacer.finish(context)

    async def drained(self, context: int) -> Played:
        with contextlib.suppress(PacerClosed):
            if context in self._open:
                await self._pacer.drained(context)
        playout = self._open.pop(context, None)
        if playout is not None:  # else it was interrupted meanwhile
            self._keep(context, playout.played(playout.end))
        return self._over.get(context, Played(0))

    def position(self, context: int) -> int:
        over = self._over.get(context)
        if over is not None:
            return over.position
        return self._pacer.position(context, self._queued_s)

    def waiting_s(self, context: int) -> float:
        if context not in self._open:
            return 0.0
        return self._pacer.core.queued_of(context) * self._ptime_s

    def resume_at(self, context: int) -> int | None:
        return None

    def interrupt(self) -> None:
        now = self.clock.now()
        self.interruptions += 1
        self._silence(now, max(now, self.quiet_at))

    async def interrupted(self) -> Interruption:
        """Return interruptions' results, ``silent_at`` of the last at the latest."""
        stopped = self._stopped
        if stopped is None:
            return Interruption(at=self.clock.now())
        return Interruption(stopped.at, stopped.silent_at, dict(self._over))

    def duck(self, db: float) -> DuckMode:
        attenuation = tenths(db)
        if self._attenuator is not None:
            self._attenuator.aim(attenuation, sounding=self._pacer.core.sounding)
            return "duck"
        if self._started and not self.closed and (attenuation > 0) != self._held:
            with contextlib.suppress(PacerClosed, SinkFailed):
                self._held = attenuation > 0
                if self._held:
                    self._pacer.hold(silence=True)
                else:
                    self._pacer.resume()
                    for playout in self._open.values():
                        playout.resumed = True
        return "hold"

    # --- besides

    def scale(self, payload_name: str, sample_hz: int) -> None:
        """Name the format of the frames, for ducking; without it they are held."""
        scale = scale_of(payload_name, sample_hz)
        self._attenuator = Attenuator(scale) if scale is not None else None

    def start(self) -> None:
        if not self._started and not self.closed:
            self._started = True
            self._pacer.start()

    @property
    def busy(self) -> bool:
        return self._started and self._pacer.core.state is not State.IDLE

    @property
    def unplayed_s(self) -> float:
        left_s = 0.0 if self._cut_off else max(0.0, self.quiet_at - self.clock.now())
        return self._pacer.core.queued * self._ptime_s + left_s

    async def close(self) -> None:
        if self.closed:
            return
        self.interrupt()
        self.closed = True
        if self._started:
            await self._pacer.close()

    # --- inside

    async def _hand_over(self, payload: bytes, slot: Slot) -> None:
        now = self.clock.now()
        frame = slot.frame
        if frame is not None:
            self._cut_off = False
            self._open[frame.context].sent_for(frame, slot.deadline, now, self._ptime_s)
        elif not self._continuous and (self._cut_off or now - slot.deadline > self._queued_s):
            # A fade is heard only right after its frame; late, it would be a click of its own.
            return
        if slot.kind is not Kind.SILENCE:
            self.quiet_at = max(now, slot.deadline) + self._ptime_s + self._queued_s
        before = self.interruptions
        if self._attenuator is not None and self._attenuator.active:
            payload = self._attenuator.slot(slot)
        try:
            answer = await self._write_frame(payload, slot)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # it is this sink that is being closed
            self.error = error
            answer = False
        except Exception as error:  # the receiver's fault must not end the call
            log.warning("a frame was not taken: %r", error)
            self.error = error
            answer = False
        # After an interruption the answer is about what is over, and no news.
        if answer is False and self.interruptions == before:
            self._refused()

    def _refused(self) -> None:
        now = self.clock.now()
        self.interruptions += 1
        self.quiet_at = now  # who refuses has thrown away what it had
        self._silence(now, now)
        if self._on_refused is None:
            return
        try:
            self._on_refused()
        except Exception:  # the callback must not end the pacing
            log.exception("what a refusal leads to has failed")

    def _silence(self, now: float, silent_at: float) -> None:
        positions = {context: self.position(context) for context in self._open}
        dropped = {each.context: each.frames for each in self._pacer.interrupt().contexts}
        for context, playout in self._open.items():
            self._keep(context, playout.played(positions[context], dropped.get(context, 0)))
        self._open.clear()
        self._cut_off = True
        self._stopped = Interruption(at=now, silent_at=silent_at)
        self.duck(0.0)

    def _keep(self, context: int, played: Played) -> None:
        self._over[context] = played
        while len(self._over) > KEPT:
            del self._over[next(iter(self._over))]
