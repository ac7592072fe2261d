"""Sink of a call's speech: frames into the ring of the media process.

An utterance is one context. After a codec change its rest is encoded again and becomes another
context of the leg: an utterance's contexts are its *parts*.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

from qwen3tts_codecs.g711 import PCMU
from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.gain import Scale, scale_of, tenths
from qwen3tts_pacer.memory import ContextSent
from qwen3tts_pacer.slot import Frame
from qwen3tts_phone.audio.frames import Tap
from qwen3tts_phone.errors import CallError
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.outbound import codec_number
from qwen3tts_phone.media.types import RemoteMedia
from qwen3tts_speech.frame_writer import FrameTranscoder
from qwen3tts_speech.sink import DuckMode, Interruption, Played
from qwen3tts_wire.errors import log_text

logger = logging.getLogger(__name__)


KEPT = 64
"""Contexts that are remembered after they are over."""


class SinkContext:
    def __init__(self, number: int, key: str, leg: MediaLeg, ptime_ms: int) -> None:
        self.number = number
        self.parts: list[int] = []
        """The leg's names for it, in order; the last one is written to."""
        self.queued: deque[Frame] = deque()
        """Frames in the ring that are not known to have gone out."""
        self.over = asyncio.Event()
        """Set when nothing of it will go out any more."""
        self.finished = False
        """True if the speaker has written its last frame."""
        self.complete = False
        """True if all of it has gone out."""
        self.cut = False
        """True if an interruption took it."""
        self.lost = 0
        """Frames that an interruption took before they were in the ring."""
        self._ptime_ms = ptime_ms
        self._key = key
        self._leg = leg
        self.gone = 0
        """Frames of the last part that are known to have gone out."""
        self._at: float | None = None  # the slot of the last of them, seconds
        self._starved = 0  # slots of silence among them
        self._last: Frame | None = None
        """Frame that went out last."""
        self._part_finished = False

    @property
    def part(self) -> int:
        return self.parts[-1]

    def begin(self, part: int, ptime_ms: int) -> None:
        self._leg.begin(part, key=self._key)
        self.parts.append(part)
        self.queued.clear()
        self._ptime_ms = ptime_ms
        self.gone = self._starved = 0
        self._at = None
        self._part_finished = False

    def write(self, frames: Sequence[Frame]) -> int:
        if not frames:
            return 0
        if frames[0].context != self.part:
            frames = [frame._replace(context=self.part) for frame in frames]
        accepted = self._leg.write(frames)
        self.queued.extend(frames[:accepted])
        return accepted

    def finish_part(self) -> None:
        if not self._part_finished:
            self._part_finished = True
            self._leg.finish(self.part)

    def follow(self) -> list[tuple[bytes, float]]:
        """Return payload and slot (monotonic, s) of frames sent since the last call."""
        sent = self._leg.sent(self.part)
        if sent is None:
            return []
        new = min(sent.frames - self.gone, len(self.queued))
        last = self._slot_of(sent)
        gone = []
        for index in range(new):
            self._last = self.queued.popleft()
            gone.append((self._last.payload, last - (new - 1 - index) * self._ptime_ms / 1000))
        self.gone, self._starved, self._at = sent.frames, sent.starved_slots, last
        return gone

    def _slot_of(self, sent: ContextSent) -> float:
        at = sent.last_ns / 1e9
        if self._at is None:
            return at
        ptime_s = self._ptime_ms / 1000
        slots = sent.frames - self.gone + sent.starved_slots - self._starved
        due = self._at + slots * ptime_s
        # More than a slot off: it was held up by a hold, or by keys.
        return due if abs(at - due) < ptime_s else at

    def reencoded(self, old: Payload, new: Payload, ptime_ms: int) -> FrameTranscoder:
        return FrameTranscoder(list(self.queued), old, new, self._ptime_ms, ptime_ms, self._last)

    def position(self) -> int:
        return max((self._leg.position(part) for part in self.parts), default=0)

    def played(self, dropped: int = 0) -> Played:
        sent = [each for each in map(self._leg.sent, self.parts) if each is not None]
        if not sent:
            return Played(position=0, dropped=dropped)
        return Played(
            position=max(each.end for each in sent),
            dropped=dropped,
            first_at=_seconds(sent[0].first_ns),
            first_audible_at=_first_audible(sent),
            last_at=_seconds(sent[-1].last_ns),
            starvations=sum(each.starvations for each in sent),
            starved_s=sum(each.starved_slots for each in sent) * self._ptime_ms / 1000,
            longest_gap_s=max(each.longest_slots for each in sent) * self._ptime_ms / 1000,
        )


def _scale_of(payload: Payload) -> Scale | None:
    """Return what scales the frames in the media process; None = it holds them."""
    return scale_of(payload.name) if codec_number(payload.name) else None


def _first_audible(sent: Sequence[ContextSent]) -> float | None:
    return next((at for each in sent if (at := _seconds(each.audible_ns)) is not None), None)


def _seconds(at_ns: int) -> float | None:
    return at_ns / 1e9 if at_ns else None


class RtpSink:
    def __init__(self, leg: MediaLeg, ptime_ms: int, payload: Payload = PCMU) -> None:
        self._leg = leg
        self._ptime_ms = ptime_ms
        self._payload = payload
        self._scale = _scale_of(payload)
        self._ducked = self._was_ducked = False
        self._taps: list[Tap] = []
        self._live: dict[int, SinkContext] = {}
        """Contexts of which something may still go out."""
        self._past: OrderedDict[int, SinkContext] = OrderedDict()
        """Latest contexts that are over."""
        self._parts: dict[int, SinkContext] = {}
        """The live ones by their parts."""
        self._last_part = 0
        self._backlog: deque[tuple[SinkContext, FrameTranscoder]] = deque()
        """Speech to be encoded again after a change of the codec, in order."""
        self._pumping: asyncio.Task[None] | None = None
        self._changing: asyncio.Event | None = None
        """Set when the codec has been changed, and all that waited is in the ring again; None = it
        is not being changed."""
        self._epoch: int | None = None
        """The last interruption."""
        self._epochs: list[tuple[int, list[SinkContext]]] = []
        """Interruptions not reported yet, with the contexts that they flushed."""
        self._stopped: dict[int, Played] = {}
        """Playout of interrupted contexts."""
        self.last_at: float | None = None
        """End of the last utterance that was played in full, seconds."""

    # --- a FrameSink

    def begin(self, context: int, key: str) -> None:
        each = SinkContext(context, key, self._leg, self._ptime_ms)
        self._begin_part(each)
        self._live[context] = each

    def write(self, frames: Sequence[Frame]) -> int:
        if not frames:
            return 0
        context = self._live.get(frames[0].context)
        if context is None or context.cut:
            if self._leg.over:
                self._leg.check()
            return len(frames)  # an interruption took it; what comes late goes the same way
        if self._changing is not None:
            return 0
        self._follow(context)  # keeps no more than waits
        return context.write(frames)

    async def room(self) -> None:
        """Wait until the ring has room. Raises MediaLost, LegClosed."""
        while True:
            if self._changing is not None:
                await self._changing.wait()
            await self._leg.room()
            if self._changing is None:
                return

    def finish(self, context: int) -> None:
        each = self._live.get(context)
        if each is not None:
            each.finished = True
            if self._changing is None:
                each.finish_part()

    async def drained(self, context: int) -> Played:
        """Wait until the last frame has gone out. Raises LegClosed, MediaLost."""
        each = self._find(context)
        if each is None:
            return self._stopped.get(context, Played(0))
        await each.over.wait()
        if not (each.complete or each.cut):
            self._leg.check()
        return each.played()

    def position(self, context: int) -> int:
        each = self._find(context)
        return each.position() if each is not None else 0

    def waiting_s(self, context: int) -> float:
        each = self._live.get(context)
        if each is None or each.cut:
            return 0.0
        self._follow(each)
        return len(each.queued) * self._ptime_ms / 1000

    def interrupt(self) -> None:
        if self._leg.over or self._leg.remote is None:
            return  # nothing can have been sent
        self._epoch = self._leg.interrupt()
        if self._ducked:  # only now: nothing may go out at full level
            self.duck(0.0)
        for each, rest in self._backlog:
            each.lost += rest.left
        self._backlog.clear()
        taken = [each for each in self._live.values() if not each.cut]
        for each in taken:
            each.cut = True
        if taken:
            self._epochs.append((self._epoch, taken))

    def duck(self, db: float) -> DuckMode:
        attenuation = tenths(db)
        if not self._leg.over and self._leg.remote is not None:
            self._ducked = attenuation > 0
            self._was_ducked = self._was_ducked or self._ducked
            self._leg.duck(attenuation)
        return "hold" if self._scale is None else "duck"

    async def interrupted(self) -> Interruption:
        if self._epoch is None or self._leg.over:
            return self._ended_by_the_call()
        at = (await self._leg.dropped(self._epochs[0][0] if self._epochs else self._epoch)).at
        while self._epochs:
            first = self._epochs[0]
            dropped = await self._leg.dropped(first[0])
            if not self._epochs or self._epochs[0] is not first:
                continue  # another utterance has waited for the same
            self._epochs.pop(0)
            self.follow()
            frames = {each.context: each.frames for each in dropped.contexts}
            for each in first[1]:
                self._stopped[each.number] = each.played(frames.get(each.part, 0) + each.lost)
                self._forget(each)
        return Interruption(at=at, silent_at=at, played=self._known())

    # --- the codec

    async def change(
        self,
        remote: RemoteMedia,
        payload: Payload,
        switched: Callable[[], None],
        resumed: Callable[[], None],
    ) -> None:
        """Switch the codec; queued speech is encoded again.

        ``switched``: called when the ring takes the new format; ``resumed``: when it takes new
        frames.

        Raises LegClosed, MediaLost, MediaRefused; nothing has changed then.
        """
        while self._changing is not None:
            await self._changing.wait()
        changing = self._changing = asyncio.Event()
        try:
            epoch = await self._leg.update(remote)
            if epoch is not None:
                await self._leg.dropped(epoch)
            self.follow()
            old, self._payload = self._payload, payload
            self._scale = _scale_of(payload)
            self._ptime_ms = self._leg.remote.ptime_ms if self._leg.remote else remote.ptime_ms
            self._reencode(old, in_place=epoch is None)
            switched()
            pumping = self._pump(changing, resumed)
        except BaseException:
            self._changed(changing)
            raise
        self._pumping = asyncio.create_task(pumping, name="frames encoded again")

    def _reencode(self, old: Payload, *, in_place: bool) -> None:
        for each in list(self._live.values()):
            if each.cut:
                continue
            made = each.reencoded(old, self._payload, self._ptime_ms)
            if in_place:
                each.queued = deque(made.take(made.left))
            elif made.left or not each.finished:
                self._backlog.append((each, made))
            else:
                self._end(each)

    async def _pump(self, changing: asyncio.Event, resumed: Callable[[], None]) -> None:
        try:
            while self._backlog:
                each, made = self._backlog[0]
                self._begin_part(each)
                while frames := made.take():
                    while frames and not each.cut:
                        del frames[: each.write(frames)]
                        if frames:
                            await self._leg.room()
                    await asyncio.sleep(0)
                if each.cut:
                    continue  # an interruption has cleared the rest as well
                self._backlog.popleft()
                if each.finished:
                    each.finish_part()
            self._changed(changing)
            for each in [each for each in self._live.values() if not each.cut]:
                if each.finished:
                    each.finish_part()
            resumed()
        except CallError as error:  # the call is over, or its media
            logger.debug("what was encoded again could not be written: %s", log_text(error))
        finally:
            self._changed(changing)

    def _changed(self, changing: asyncio.Event) -> None:
        if self._changing is changing:
            self._changing = None
        changing.set()

    # --- what the leg tells

    def context_played(self, part: int) -> None:
        self.follow()
        each = self._parts.get(part)
        if each is not None and each.part == part:
            self._end(each)

    def gone(self) -> None:
        self.follow()
        for each in list(self._live.values()):
            self._forget(each)
        if self._pumping is not None:
            self._pumping.cancel()

    def tap(self, tap: Tap) -> None:
        self.follow()
        self._taps.append(tap)

    def untap(self, tap: Tap) -> None:
        if tap in self._taps:
            self._taps.remove(tap)

    def follow(self) -> None:
        for each in list(self._live.values()):
            self._follow(each)

    # --- inside

    def _follow(self, context: SinkContext) -> None:
        gone = context.follow()
        first = context.gone - len(gone)
        for number, (payload, at) in enumerate(gone, first):
            if self._was_ducked and self._scale is not None:
                payload = self._scale(payload, *self._leg.attenuation(context.part, number))
            for tap in list(self._taps):
                tap(payload, at)

    def _begin_part(self, context: SinkContext) -> None:
        self._last_part = max(self._last_part + 1, context.number)
        context.begin(self._last_part, self._ptime_ms)
        self._parts[self._last_part] = context

    def _find(self, context: int) -> SinkContext | None:
        return self._live.get(context) or self._past.get(context)

    def _known(self) -> dict[int, Played]:
        return {each.number: each.played() for each in self._past.values()} | self._stopped

    def _ended_by_the_call(self) -> Interruption:
        live = {each.number: each.played() for each in self._live.values()}
        return Interruption(at=0.0, played=live | self._known())

    def _end(self, context: SinkContext) -> None:
        context.complete = True
        self.last_at = context.played().last_at
        self._forget(context)

    def _forget(self, context: SinkContext) -> None:
        self._live.pop(context.number, None)
        for part in context.parts:
            self._parts.pop(part, None)
        context.queued.clear()
        self._past[context.number] = context
        if len(self._past) > KEPT:
            self._past.popitem(last=False)
        context.over.set()
