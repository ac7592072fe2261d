"""One call's way from the ring to the packet: frames taken out of it, and when each is due."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from qwen3tts_pacer import PacerCore, State
from qwen3tts_pacer.frame import Frame
from qwen3tts_pacer.memory import CallMemory, MediaWord, ParentWord
from qwen3tts_pacer.policy import FillingPolicy, FillingSettings
from qwen3tts_pacer.ring import OutboundReader, RecordKind
from qwen3tts_phone.media.laws import table_between, translated
from qwen3tts_phone.media.ledger import Ledger

TAKE_MOST = 8
"""Records taken from the ring in one slot: a full ring must not delay the other calls."""
CORE_FRAMES = 100
"""Frames that wait in the core; the rest wait in the ring."""

_OUT_HEAD = int(ParentWord.OUT_HEAD)


class Feed:
    """The ring's reader and the pacer's core; ``silence`` is a frame of it, ``origin_s`` slot 0's
    time, ``codec`` the number of the codec in use."""

    def __init__(
        self,
        memory: CallMemory,
        pinned_s: float | None,
        ptime_s: float,
        origin_s: float,
        silence: bytes,
        codec: int,
        learnt: Mapping[str, Any] | None = None,
    ) -> None:
        self._words = memory.words
        self.reader = OutboundReader(memory)
        self._ledger = Ledger(memory)
        self._live = self._ledger.live
        self._codec = codec
        self._silence = silence
        self._quiet = True  # the core has nothing to say
        self.news = False
        """Set when one of the following has something; the caller clears it."""
        self.flushed: list[tuple[int, float]] = []
        """Epochs applied and when; the caller takes them out."""
        self.played: list[tuple[int, float]] = []
        """Contexts fully sent and when; the caller takes them out."""
        self.policy = FillingPolicy(
            FillingSettings(pinned_s=pinned_s), ptime_s=ptime_s, learnt=learnt
        )
        self._core = PacerCore(ptime_s, self.policy, silence=silence)
        self._core.start(origin_s, origin_s)

    def next(self, at: float, broken: bool) -> Frame | None:
        """The frame to play at ``at``, if there is one and the policy agrees.

        ``broken``: the slot before was not speech.
        """
        if self._words[_OUT_HEAD] != self.reader.tail:
            self._take(at)
        if self._quiet:
            return None
        # The time is the same expression as the core's own, so the floats are equal.
        slot = self._core.due(at)
        if slot is not None and slot.frame is not None:
            return slot.frame
        self._quiet = broken and self._core.state is State.IDLE
        return None

    def sent(self, frame: Frame, now_ns: int, next_at: float) -> Frame | None:
        """A frame went out. The one for the next slot, at ``next_at``, if that is sure already."""
        core = self._core
        self._ledger.sent(frame, now_ns, core.starved_slots)
        if core.drained:
            self._drained(now_ns)
        if self._words[_OUT_HEAD] != self.reader.tail:
            self._take(min(next_at, now_ns / 1e9))
        # In mid-utterance with frames at hand nothing that may still come changes what is next.
        if len(self._live) == 1 and frame.context in self._live and core.queued:
            slot = core.due(next_at)
            if slot is not None:
                return slot.frame
        return None

    def hole(self, context: int, slots: int) -> None:
        """So many slots in the middle of a context passed unsent."""
        self._ledger.hole(context, slots)

    def flush(self, now: float) -> bool:
        """Apply an interruption, if there is one: what waits is dropped."""
        reader = self.reader
        if not reader.flushed():
            return False
        self._core.interrupt(now, through=reader.through if reader.through >= 0 else None)
        self._core.drained.clear()
        self._live.clear()
        self._words[int(MediaWord.APPLIED_EPOCH)] = reader.epoch
        self.flushed.append((reader.epoch, now))
        self.news = True
        return True

    def change_codec(self, codec: int, silence: bytes) -> None:
        """Another codec is in use: what waits is translated, or goes out as silence."""
        before, self._codec, self._silence = self._codec, codec, silence
        if before != codec:
            self._core.change(lambda frame: self.fitting(frame, before))

    def change_grid(self, ptime_s: float, origin_s: float) -> None:
        """Another packet duration: slots are counted from ``origin_s`` anew."""
        self.policy.ptime_s = ptime_s
        self._core.regrid(ptime_s, origin_s)

    def fitting(self, frame: Frame, codec: int) -> Frame:
        """A frame that was encoded with another codec, for the one in use."""
        table = table_between(codec, self._codec)
        if table is not None:
            return translated(frame, table)
        return frame._replace(payload=self._silence, tail=None, head=None, silent=True)

    @property
    def starvations(self) -> int:
        """Dry spells in mid-utterance."""
        return self._core.starvations

    def _take(self, now: float) -> None:
        """Move records from the ring into the core, as of when they were written."""
        core = self._core
        if core.queued >= CORE_FRAMES:
            return
        self._quiet = False
        codec = self._codec
        batch: list[Frame] = []
        batch_ns = 0
        for kind, context, frame, written_ns, number, key in self.reader.read(TAKE_MOST):
            if batch and (frame is None or written_ns != batch_ns or context != batch[0].context):
                core.push(batch, min(now, batch_ns / 1e9))
                batch = []
            if frame is not None:
                if number and number != codec:
                    frame = self.fitting(frame, number)
                batch.append(frame)
                batch_ns = written_ns
            elif kind == RecordKind.BEGIN:
                self._ledger.begin(context, number)
                core.begin(context, min(now, written_ns / 1e9), f"{key:x}")
            else:
                core.finish(context, min(now, written_ns / 1e9))
        if batch:
            core.push(batch, min(now, batch_ns / 1e9))
        if core.drained:  # a context without a frame
            self._drained(time.monotonic_ns())

    def _drained(self, now_ns: int) -> None:
        drained = self._core.drained
        while drained:
            context = drained.popleft()
            self._live.pop(context, None)
            self.played.append((context, now_ns / 1e9))
            self.news = True
