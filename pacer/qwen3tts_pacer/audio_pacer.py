"""In-process AudioPacer: PCM or encoded frames in, one frame per packet time out.

For sinks with a buffer of their own (a carrier's WebSocket, a host's telephony plugin) the core
gets a small ``lead_s``: the pacer stays at most that far ahead of the sink's clock.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from types import TracebackType
from typing import Final, Protocol, Self, TypeAlias

from qwen3tts_codecs.payload import Payload
from qwen3tts_codecs.pcm import Pcm, PcmBytes, check_rate, to_bytes
from qwen3tts_codecs.table import payload_by_name
from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_pacer.core import PacerCore
from qwen3tts_pacer.frame_queue import Dropped, DroppedContext
from qwen3tts_pacer.slot import Frame, Slot
from qwen3tts_pacer.states import ContextError, PacerError, PacerFull
from qwen3tts_pacer.timeline import Timeline
from qwen3tts_pacer.utterance_encoder import UtteranceEncoder

OUTCOMES_KEPT = 256
ENGINE_HZ: Final = 24_000
"""Rate of the engines' PCM."""
SEND_S: Final = 0.1
"""Audio that `AudioPacer.send_pcm` encodes in one batch: other tasks run in between."""

Answer: TypeAlias = bool | Awaitable[bool | None] | None
Write: TypeAlias = Callable[[bytes, Slot], Answer]
"""A sink as a function: see `Sink.write`."""


class Sink(Protocol):
    """Receiver of slots."""

    def write(self, payload: bytes, slot: Slot) -> Answer:
        """Take one slot; False, now or awaited, asks for silence (barge-in)."""
        ...


class SinkFailed(PacerError):
    """The sink raised, and the pacer has stopped; the sink's error is the cause."""


class PacerClosed(PacerError):
    """The pacer was closed."""


class Outcome(Enum):
    """End of an utterance."""

    PLAYED = "played"
    INTERRUPTED = "interrupted"


class AudioPacer:
    """Paces speech on an exact clock; an async context manager.

    PCM (`push_pcm`) is resampled and encoded; encoded frames go in by `push`. The jitter buffer is
    that of ``core``. Slots are pushed to ``sink``; without one they are pulled: by iteration,
    `next_slot` or `due`. All methods belong to one event loop.

    Args:
        sink: function of payload and slot, or object with such a ``write``.
        core: pacing rule and buffer; None = one that sends silence between utterances.
        clock: source of time.
        codec: format of the frames: a name of `qwen3tts_codecs.table`, or a `Payload`.
        rate_hz: rate of PCM, and of positions.
        ptime_ms: duration of a frame; with ``core`` it is the core's.
        lead_ms: how far ahead of its time a slot may be sent.

    Raises UnknownPayload, UnsupportedRate, UnsupportedPtime, CodecMissing.
    """

    def __init__(
        self,
        sink: Sink | Write | None = None,
        core: PacerCore | None = None,
        clock: Clock | None = None,
        *,
        codec: str | Payload = "PCMU",
        rate_hz: int = ENGINE_HZ,
        ptime_ms: int = 20,
        lead_ms: int = 0,
    ) -> None:
        self.payload = payload_by_name(codec) if isinstance(codec, str) else codec
        self.rate_hz = rate_hz
        if core is None:
            silence = self.payload.silent_frame(ptime_ms)
            core = PacerCore(ptime_ms / 1000, silence=silence, lead_s=lead_ms / 1000)
        check_rate("rate_hz", rate_hz)
        self.core = core
        self.dropped_pcm = 0
        """Samples that came late for interrupted utterances."""
        self._encoder: UtteranceEncoder | None = None
        self._context = -1  # the newest one begun
        self._speaking = False  # PCM belongs to it
        self._interrupted = False  # and nothing was begun since
        self.timeline = Timeline(core.ptime_s)
        self.dropped: Dropped | None = None
        """Result of the last interruption, with what the sink had buffered."""
        self._write: Write | None = sink if sink is None or callable(sink) else sink.write
        self._clock: Clock = clock or LoopClock()
        self._started = False
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
        self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        failure = self._failure
        await self.close()
        if isinstance(failure, SinkFailed) and error is None:
            raise failure

    def start(self) -> None:
        if self._started:
            raise PacerError("start() was called before")
        self._started = True
        if not self.core.started:
            self.core.start(self._clock.now())
        if self._write is not None:
            run = self._run(self._write)
            self._task = asyncio.get_running_loop().create_task(run, name="audio pacer")

    async def close(self) -> None:
        task, self._task = self._task, None
        if self._failure is None:
            self._failure = PacerClosed("the pacer was closed")
        self._changed.set()
        self._wake.set()
        if self._nap is not None:
            self._nap.cancel()
        if task is not None and task is not asyncio.current_task():  # the sink may close it
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # --- PCM

    def push_pcm(self, pcm: PcmBytes | Pcm) -> int:
        """Queue samples at ``rate_hz``: s16le bytes, cut anywhere, or int16, shape [n].

        They belong to the utterance begun last; at the start and after `finish` one is begun
        implicitly. After an interruption they are dropped until the next `begin`. Return the frames
        queued. Raises PacerFull, and then nothing is taken; BadSamples.
        """
        data = _s16le(pcm)
        self._check()
        if self._interrupted:
            self.dropped_pcm += len(data) // 2
            return 0
        most = self._most_frames(len(data))
        if most > self.core.room:
            raise PacerFull(f"up to {most} frames, room for {self.core.room}: wait for room")
        if not self._speaking:
            self.begin()
        return self.push(self._pcm_encoder.push(data))

    async def send_pcm(self, pcm: PcmBytes | Pcm) -> None:
        """Queue samples as `push_pcm`, waiting for room; for one producer at a time."""
        data = _s16le(pcm)
        step = 2 * max(1, int(self.rate_hz * SEND_S))
        for start in range(0, len(data), step):
            await self.room(self._most_frames(step))
            self.push_pcm(data[start : start + step])
            await asyncio.sleep(0)

    def _most_frames(self, size: int) -> int:
        return math.ceil(size / 2 / self.rate_hz / self.core.ptime_s) + 3

    @property
    def _pcm_encoder(self) -> UtteranceEncoder:
        if self._encoder is None:
            ptime_ms = round(self.core.ptime_s * 1000)
            self._encoder = UtteranceEncoder(self.rate_hz, self.payload, ptime_ms, self._context)
        return self._encoder

    def _flush_pcm(self) -> None:
        self._speaking = False
        if self._encoder is not None:
            self.push(self._encoder.flush())

    # --- utterances

    def begin(self, context: int | None = None, key: str = "") -> int:
        """Begin an utterance and return its number; None = the next one. See `PacerCore.begin`."""
        self._check()
        number = self._context + 1 if context is None else context
        if self.core.begin(number, self._clock.now(), key):
            if self._speaking:
                self._flush_pcm()
            self._open.add(number)
            self._context = number
            if self._encoder is not None:
                self._encoder.begin(number)
            self._speaking, self._interrupted = True, False
        else:
            self._end(number, Outcome.INTERRUPTED)
        return number

    def push(self, frames: Sequence[Frame]) -> int:
        """Queue frames; return how many were taken, 0 if interrupted. Raises PacerFull."""
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

    def finish(self, context: int | None = None) -> None:
        """End an utterance (None = the last one begun); the rest of its PCM is encoded."""
        self._check()
        if context is None or context == self._context:
            if context is None and not self._speaking:
                return
            self._flush_pcm()
            context = self._context
        self.core.finish(context, self._clock.now())
        self._settle()
        self._poke()

    async def drained(self, context: int | None = None) -> Outcome:
        """Wait until a finished utterance (None = the last one begun) was played or interrupted.

        Raises SinkFailed or PacerClosed.
        """
        context = self._context if context is None else context
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
        """Fall silent from the next slot on; see `PacerCore.interrupt`.

        A sink with a buffer is to flush it.

        With a lead the positions are those played out, and what the sink buffers counts as dropped.
        """
        now = self._clock.now()
        self._context = max(self._context, -1 if through is None else through)
        self._interrupted = self._interrupted or self._speaking
        self._speaking = False
        if self._encoder is not None:
            self._encoder.reset()
        dropped = self.core.interrupt(now, through)
        if self.core.lead_s:
            dropped = self._played_out(dropped, now)
        for context in [*self._open, *self._heard_at]:
            late = self._heard_at.get(context)
            heard = late is not None and (late <= now or not self.core.lead_s)
            self._end(context, Outcome.PLAYED if heard else Outcome.INTERRUPTED)
        self.dropped = dropped
        self._poke()
        return dropped

    def hold(self, *, silence: bool = False) -> None:
        """Stop playout and keep the queue; ``silence`` as in `PacerCore.hold`."""
        self._check()
        self.core.hold(self._clock.now(), silence=silence)
        self._poke()

    def resume(self) -> None:
        self._check()
        self.core.resume(self._clock.now())
        self._poke()

    def position(self, context: int | None = None, queued_s: float = 0.0) -> int:
        """Return the playout position in samples; None = of the last one begun."""
        context = self._context if context is None else context
        return self.timeline.position(context, self._clock.now(), queued_s)

    # --- slots

    def due(self) -> Slot | None:
        """Return the slot that is due, or None; for loops with a clock of their own."""
        slot = self.core.due(self._clock.now())
        if slot is not None and slot.frame is not None:
            self.timeline.sent(slot.frame, slot.deadline)
            self._settle(slot.deadline + self.core.ptime_s)
        return slot

    async def next_slot(self) -> Slot:
        """Wait for the next slot, where there is no sink. Raises PacerClosed."""
        if self._write is not None:
            raise PacerError("slots go to the sink; make the pacer without one to pull them")
        while True:
            self._check()
            slot = self.due()
            if slot is not None:
                return slot
            await self._rest(self.core.next_deadline())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Slot:
        try:
            return await self.next_slot()
        except PacerClosed:
            raise StopAsyncIteration from None

    async def _run(self, write: Write) -> None:
        try:
            while self._failure is None:
                slot = self.due()
                if slot is None:
                    await self._rest(self.core.next_deadline())
                    continue
                answer = write(slot.payload, slot)
                if inspect.isawaitable(answer):
                    answer = await answer
                if answer is False:
                    self.interrupt()
        except (Exception, asyncio.CancelledError) as error:
            # The end of the task: waiting and later callers get the sink's error. What the sink
            # awaits may be cancelled, too; close() has set the failure before.
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
        self._wake.set()
        deadline = self.core.next_deadline()
        if self._nap is not None and deadline is not None and deadline < self._nap_until:
            self._nap.cancel()

    def _settle(self, heard_at: float | None = None) -> None:
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

    def _played_out(self, dropped: Dropped, now: float) -> Dropped:
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


def _s16le(pcm: PcmBytes | Pcm) -> bytes | bytearray:
    if isinstance(pcm, bytes | bytearray):
        return pcm
    return pcm.tobytes() if isinstance(pcm, memoryview) else to_bytes(pcm)
