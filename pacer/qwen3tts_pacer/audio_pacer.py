"""The in-process AudioPacer: PCM or encoded frames in, one frame per packet time out.

For sinks that keep a buffer of their own (a carrier's WebSocket, a host's telephony plugin) give
the core a small ``lead_s``; the sink's own clock then decides when a sample sounds, and this pacer
stays at most that far ahead of it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Sequence
from enum import Enum
from types import TracebackType
from typing import Protocol, Self

from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_pacer.core import Dropped, DroppedContext, PacerCore
from qwen3tts_pacer.slot import Frame, Slot
from qwen3tts_pacer.states import ContextError, PacerError, PacerFull
from qwen3tts_pacer.timeline import Timeline

OUTCOMES_KEPT = 256


class Sink(Protocol):
    """Where slots go."""

    def write(self, payload: bytes, slot: Slot) -> bool | Awaitable[bool | None] | None:
        """Take one slot; False, now or awaited, asks for silence (the listener has cut in)."""
        ...


class SinkFailed(PacerError):
    """The sink raised; the pacer has stopped. The sink's own error is the cause."""


class PacerClosed(PacerError):
    """The pacer was closed before this could happen."""


class Outcome(Enum):
    """How an utterance ended."""

    PLAYED = "played"
    INTERRUPTED = "interrupted"


class AudioPacer:
    """Paces frames into a sink; an async context manager. All methods belong to one event loop."""

    def __init__(self, sink: Sink, core: PacerCore, clock: Clock | None = None) -> None:
        self.core = core
        self.timeline = Timeline(core.ptime_s)
        self.dropped: Dropped | None = None
        """What the last interruption dropped, the sink's own included."""
        self._sink = sink
        self._clock: Clock = clock or LoopClock()
        self._task: asyncio.Task[None] | None = None
        self._nap: asyncio.Task[None] | None = None
        self._nap_until = 0.0
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()  # room, an outcome or the end: waiters look again
        self._outcomes: dict[int, Outcome] = {}
        self._heard_at: dict[int, float] = {}  # last sample of contexts fully sent
        self._open: set[int] = set()
        self._failure: PacerError | None = None

    async def __aenter__(self) -> Self:
        """Start the task; with a continuous core silence flows from here on."""
        self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop; raises `SinkFailed` unless another error is under way, so none is lost."""
        failure = self._failure
        await self.close()
        if isinstance(failure, SinkFailed) and error is None:
            raise failure

    def start(self) -> None:
        """Begin to pace. Needs a running loop."""
        if self._task is not None:
            raise PacerError("start() was called before")
        self.core.start(self._clock.now())
        self._task = asyncio.get_running_loop().create_task(self._run(), name="audio pacer")

    async def close(self) -> None:
        """Stop at once; what is queued is not played, who waits gets `PacerClosed`."""
        task, self._task = self._task, None
        if self._failure is None:
            self._failure = PacerClosed("the pacer was closed")
        self._changed.set()
        if task is not None and task is not asyncio.current_task():  # the sink may close it
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def begin(self, context: int, key: str = "") -> None:
        """An utterance follows; see `PacerCore.begin`."""
        self._check()
        if self.core.begin(context, self._clock.now(), key):
            self._open.add(context)
        else:
            self._end(context, Outcome.INTERRUPTED)

    def push(self, frames: Sequence[Frame]) -> int:
        """Queue frames now; `PacerFull` when there is no room, 0 when they were interrupted."""
        self._check()
        taken = self.core.push(frames, self._clock.now())
        self._settle()
        self._poke()
        return taken

    async def room(self, frames: int = 1) -> None:
        """Wait until that many frames may be pushed."""
        if frames > self.core.capacity:
            raise PacerFull(f"{frames} frames can never fit into {self.core.capacity}")
        self._check()
        while self.core.room < frames:
            await self._change()

    async def send(self, frames: Sequence[Frame]) -> int:
        """Wait for room and queue; for one producer at a time."""
        await self.room(len(frames))
        return self.push(frames)

    def finish(self, context: int) -> None:
        """No frame of this context follows."""
        self._check()
        self.core.finish(context, self._clock.now())
        self._settle()
        self._poke()

    async def drained(self, context: int) -> Outcome:
        """Wait until the last sample of a finished context has been heard, or it was interrupted.

        Raises `SinkFailed` when the sink failed before, `PacerClosed` when it was closed.
        """
        while (outcome := self._outcomes.get(context)) is None:
            heard_at = self._heard_at.get(context)
            if heard_at is not None:
                await self._clock.sleep_until(heard_at)
                if context in self._heard_at and self._clock.now() >= heard_at:
                    self._end(context, Outcome.PLAYED)
                continue
            if context not in self._open:
                raise ContextError(f"context {context} was not begun, or ended long ago")
            self._check()
            await self._change()
        return outcome

    def interrupt(self, through: int | None = None) -> Dropped:
        """Silence from the next slot on; see `PacerCore.interrupt`. With a lead, tell the sink too.

        With a lead the positions are those at the ear, and what the sink holds counts as dropped.
        """
        now = self._clock.now()
        dropped = self.core.interrupt(now, through)
        if self.core.lead_s:
            dropped = self._at_the_ear(dropped, now)
        for context in [*self._open, *self._heard_at]:
            late = self._heard_at.get(context)
            heard = late is not None and (late <= now or not self.core.lead_s)
            self._end(context, Outcome.PLAYED if heard else Outcome.INTERRUPTED)
        self.dropped = dropped
        self._poke()
        return dropped

    def hold(self) -> None:
        """Stop sending and keep the queue; see `PacerCore.hold`."""
        self._check()
        self.core.hold(self._clock.now())

    def resume(self) -> None:
        """Go on after `hold`."""
        self._check()
        self.core.resume(self._clock.now())
        self._poke()

    def position(self, context: int, queued_s: float = 0.0) -> int:
        """Samples of the context heard by now; ``queued_s`` as in `Timeline.position`."""
        return self.timeline.position(context, self._clock.now(), queued_s)

    async def _run(self) -> None:
        core, clock, sink = self.core, self._clock, self._sink
        try:
            while self._failure is None:
                slot = core.due(clock.now())
                if slot is None:
                    await self._rest(core.next_deadline())
                    continue
                if slot.frame is not None:
                    self.timeline.sent(slot.frame, slot.deadline)
                    self._settle(slot.deadline + core.ptime_s)
                answer = sink.write(slot.payload, slot)
                if inspect.isawaitable(answer):
                    answer = await answer
                if answer is False:
                    self.interrupt()
        except (Exception, asyncio.CancelledError) as error:
            # The end of the task: whoever waits or calls next is told, with the sink's traceback.
            # What the sink awaits may be cancelled, too; close() has said before that it is it.
            if self._failure is None:
                self._failure = SinkFailed(f"the sink failed: {type(error).__name__}: {error}")
                self._failure.__cause__ = error
            self._changed.set()
            if isinstance(error, asyncio.CancelledError):
                raise

    async def _rest(self, deadline: float | None) -> None:
        if deadline is None:
            self._wake.clear()
            await self._wake.wait()
            return
        self._nap_until = deadline
        nap = asyncio.ensure_future(self._clock.sleep_until(deadline))
        self._nap = nap
        try:
            await asyncio.wait((nap,))
        finally:
            self._nap = None
            nap.cancel()

    def _poke(self) -> None:
        """The core's deadline may have come nearer."""
        self._wake.set()
        deadline = self.core.next_deadline()
        if self._nap is not None and deadline is not None and deadline < self._nap_until:
            self._nap.cancel()

    def _settle(self, heard_at: float | None = None) -> None:
        """Note the contexts that the core has sent out, and tell whoever waits."""
        for context in self._take_drained():
            spans = self.timeline.spans(context)
            self._open.discard(context)
            ended = spans[-1].ended if spans else self._clock.now()
            self._heard_at[context] = ended if heard_at is None else heard_at
        self._changed.set()

    def _take_drained(self) -> list[int]:
        taken = list(self.core.drained)
        self.core.drained.clear()
        now = self._clock.now()
        for context in [each for each, at in self._heard_at.items() if at <= now]:
            self._end(context, Outcome.PLAYED)
        return taken

    def _end(self, context: int, outcome: Outcome) -> None:
        self._open.discard(context)
        self._heard_at.pop(context, None)
        self._outcomes[context] = outcome
        while len(self._outcomes) > OUTCOMES_KEPT:
            del self._outcomes[next(iter(self._outcomes))]
        self._changed.set()

    def _at_the_ear(self, dropped: Dropped, now: float) -> Dropped:
        contexts = [
            each._replace(
                played=(heard := self.timeline.position(each.context, now)),
                samples=each.samples + each.played - heard,
            )
            for each in dropped.contexts
        ]
        for context, heard_at in self._heard_at.items():
            if heard_at > now:
                end = self.timeline.spans(context)[-1].end
                heard = self.timeline.position(context, now)
                contexts.append(DroppedContext(context, 0, end - heard, heard))
        contexts.sort()
        return Dropped(now, tuple(contexts))

    def _check(self) -> None:
        if isinstance(self._failure, SinkFailed):
            raise SinkFailed(str(self._failure)) from self._failure.__cause__
        if self._failure is not None:
            raise PacerClosed(str(self._failure))

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
        self._check()
