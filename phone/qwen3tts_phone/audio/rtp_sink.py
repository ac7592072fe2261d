"""Sink of a call's speech: frames into the ring of the media process.

An utterance is one context. After a codec change its rest is encoded again and becomes another
context of the leg: an utterance's contexts are its *parts*.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

from qwen3tts_codecs.g711 import PCMU
from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.gain import Scale, scale_of, tenths
from qwen3tts_pacer.memory import ContextSent
from qwen3tts_pacer.slot import Frame
from qwen3tts_phone.audio.frames import Tap
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.outbound import codec_number
from qwen3tts_phone.media.types import RemoteMedia
from qwen3tts_speech.sink import DuckMode, Interruption, Played

KEPT = 64
"""Contexts that are remembered after they are over."""


class SinkContext:
    def __init__(self, number: int, key: str, leg: MediaLeg, ptime_ms: int) -> None:
        self.number = number
        self.parts: list[int] = []
        """The leg's names for it, in order; the last one is written to."""
        self.queued: deque[bytes] = deque()
        """Payloads in the ring that are not known to have gone out."""
        self.over = asyncio.Event()
        """Set when nothing of it will go out any more."""
        self.finished = False
        """True if the speaker has written its last frame."""
        self.complete = False
        """True if all of it has gone out."""
        self.cut = False
        """True if an interruption took it."""
        self.restarts = False
        """True if the codec has changed: another part begins with the next frame."""
        self._ptime_ms = ptime_ms
        self._key = key
        self._leg = leg
        self.gone = 0
        """Frames of the last part that are known to have gone out."""
        self._at: float | None = None  # the slot of the last of them, seconds
        self._starved = 0  # slots of silence among them
        self._part_finished = False

    @property
    def part(self) -> int:
        return self.parts[-1]

    def begin(self, part: int, ptime_ms: int) -> None:
        self._leg.begin(part, key=self._key)
        self.parts.append(part)
        self.queued.clear()
        self._ptime_ms = ptime_ms
        self.restarts = False
        self.gone = self._starved = 0
        self._at = None
        self._part_finished = False

    def write(self, frames: Sequence[Frame]) -> int:
        if not frames:
            return 0
        if frames[0].context != self.part:
            frames = [frame._replace(context=self.part) for frame in frames]
        accepted = self._leg.write(frames)
        self.queued.extend([frame.payload for frame in frames[:accepted]])
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
            gone.append((self.queued.popleft(), last - (new - 1 - index) * self._ptime_ms / 1000))
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

    def translate(self, old: Payload, new: Payload) -> None:
        """Follow the media process, which translates between the laws of G.711."""
        self.queued = deque(new.encode(old.decode(payload)) for payload in self.queued)

    def flushed(self) -> None:
        """Note that a change of the codec has taken what was in the ring."""
        self.queued.clear()
        self.restarts = True
        self.finished = False

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
    changes_codec = True

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
        self._changing: asyncio.Event | None = None
        """Set when the codec has been changed; None = it is not being changed."""
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
        if context.restarts:
            self._begin_part(context)
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
                self._finish(each)

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

    def resume_at(self, context: int) -> int | None:
        each = self._live.get(context)
        return each.played().position if each is not None and each.restarts else None

    def interrupt(self) -> None:
        if self._leg.over or self._leg.remote is None:
            return  # nothing can have been sent
        self._epoch = self._leg.interrupt()
        if self._ducked:  # only now: nothing may go out at full level
            self.duck(0.0)
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
                self._stopped[each.number] = each.played(frames.get(each.part, 0))
                self._forget(each)
        return Interruption(at=at, silent_at=at, played=self._known())

    # --- the codec

    async def change(
        self, remote: RemoteMedia, payload: Payload, switched: Callable[[], None]
    ) -> None:
        """Switch the codec: what is in the ring is translated, or flushed to be written again.

        ``switched``: called when the sink has the new format, before it takes frames.

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
            for each in self._live.values():
                if not each.cut and epoch is None:
                    each.translate(old, payload)
                elif not each.cut:
                    each.flushed()
            switched()
        finally:
            self._changing = None
            changing.set()
            if not self._leg.over:
                for each in [each for each in self._live.values() if each.finished]:
                    self._finish(each)

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

    def _finish(self, context: SinkContext) -> None:
        if context.cut:
            return
        if context.restarts:  # all of it had gone out
            self._end(context)
        else:
            context.finish_part()

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
