"""Outbound half of one call: ring to pacer core, and the playout ledger.

The media process has no numpy: G.711 is transcoded by tables of code words (ITU-T G.711).
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from qwen3tts_pacer.gain import ALAW_LEVELS, ULAW_LEVELS
from qwen3tts_pacer.memory import CallMemory, ContextTable, MediaWord, ParentWord
from qwen3tts_pacer.policy import FillingPolicy
from qwen3tts_pacer.ring import OutboundReader, RecordKind, key_of
from qwen3tts_pacer.sender_core import SenderCore
from qwen3tts_pacer.slot import Frame, Slot
from qwen3tts_pacer.timeline import ContextPlayout
from qwen3tts_phone.media.types import RemoteMedia

TAKE_MOST = 8
"""Records taken from the ring in one slot: a full ring must not delay the other calls."""
CORE_FRAMES = 100
"""Frames that wait in the core; the rest wait in the ring."""

_OUT_HEAD = int(ParentWord.OUT_HEAD)


def _table(levels: Sequence[int], codes: Sequence[int]) -> bytes:
    """Return for each level the nearest code; of two, the one of the same sign."""
    order = sorted(range(256), key=lambda code: (codes[code], code))
    ladder = [codes[code] for code in order]
    found = bytearray()
    for index, level in enumerate(levels):
        place = bisect_left(ladder, level)
        near = [at for at in (place - 1, place, place + 1) if 0 <= at < 256]
        # A code below 0x80 is negative in both laws, also where its level is 0.
        negative = index < 0x80
        found.append(
            min(
                (order[at] for at in near),
                key=lambda code: (abs(codes[code] - level), (code < 0x80) != negative, code),
            )
        )
    return bytes(found)


_ULAW_TO_ALAW = _table(ULAW_LEVELS, ALAW_LEVELS)
_ALAW_TO_ULAW = _table(ALAW_LEVELS, ULAW_LEVELS)
_CODECS = {"PCMU": 1, "PCMA": 2}
_TABLES = {(1, 2): _ULAW_TO_ALAW, (2, 1): _ALAW_TO_ULAW}


def codec_number(payload_name: str) -> int | None:
    """Return the number of a G.711 law in a call's ring; None = another codec."""
    return _CODECS.get(payload_name)


def translated(frame: Frame, table: bytes) -> Frame:
    return frame._replace(
        payload=frame.payload.translate(table),
        tail=None if frame.tail is None else frame.tail.translate(table),
        head=None if frame.head is None else frame.head.translate(table),
    )


def table_between(one: int, other: int) -> bytes | None:
    """Return the map of code words from one law to the other; None = other codecs."""
    return _TABLES.get((one, other))


def keeping_ptime(remote: RemoteMedia, before: RemoteMedia) -> RemoteMedia:
    """Keep the packet duration of ``before``, for which frames are queued."""
    if remote.ptime_ms == before.ptime_ms:
        return remote
    silence = before.silence if remote.payload_name == before.payload_name else ""
    return replace(remote, ptime_ms=before.ptime_ms, silence=silence)


class PlayoutLedger:
    """Playout of the open contexts in nanoseconds and slots, published in the call's table."""

    def __init__(self, memory: CallMemory) -> None:
        self._table = ContextTable(memory)
        self.open: dict[int, tuple[int, ContextPlayout[int]]] = {}
        """By context: its place in the table, and its playout."""

    def begin(self, context: int, entry: int) -> None:
        self.open[context] = entry, ContextPlayout[int]()
        self._table.store(entry, context, 0, 0, 0, 0, 0)
        self._table.store_seldom(entry, 0, 0, 0, 0)

    def sent(self, frame: Frame, missed: int, now_ns: int) -> None:
        """Note a frame that was sent, after ``missed`` slots lost to an underrun or lateness."""
        entry, playout = self.open[frame.context]
        audible = playout.audible_at
        playout.sent(frame, now_ns, missed)
        self._table.store(
            entry,
            frame.context,
            playout.frames,
            frame.start,
            frame.end,
            playout.first_at or 0,
            now_ns,
        )
        if missed or playout.audible_at != audible:
            self._table.store_seldom(
                entry,
                playout.audible_at or 0,
                playout.starvations,
                playout.missed,
                playout.longest,
            )


class OutboundPacer:
    """Reads one call's ring into its `SenderCore`, which decides what each slot carries.

    Args:
        memory: the call's shared memory.
        core: pacing rule; started here, slot 0 at ``origin_s``.
        codec: number of the codec in use.
    """

    def __init__(
        self,
        memory: CallMemory,
        core: SenderCore,
        origin_s: float,
        codec: int,
    ) -> None:
        self.core = core
        self.reader = OutboundReader(memory)
        self.news = False
        """Set when one of the following has something; the caller clears it."""
        self.flushed: list[tuple[int, float]] = []
        """Epochs applied and when; the caller takes them out."""
        self.played: list[tuple[int, float]] = []
        """Contexts fully sent and when; the caller takes them out."""
        self._words = memory.words
        self._ledger = PlayoutLedger(memory)
        self._codec = codec
        core.start(origin_s, origin_s)

    def sent(self, frame: Frame, missed: int, now_ns: int, next_at: float) -> Slot | None:
        """Note a frame that was sent; return the slot at ``next_at`` if it is certain already.

        Then the next call of a group need not wait for it (benchmarks/pacing.py: p99 0.11 ms
        without, 0.07 with it).
        """
        self._ledger.sent(frame, missed, now_ns)
        if self.core.drained:
            self._drained(now_ns)
        if self._words[_OUT_HEAD] != self.reader.tail:
            self.take(min(next_at, now_ns / 1e9))
        return self.core.due_ahead(next_at)

    def flush(self, now: float) -> None:
        """Apply an interruption, if there is one: what waits is dropped."""
        reader = self.reader
        if not reader.flushed():
            return
        self.core.interrupt(now, through=reader.through if reader.through >= 0 else None)
        self.core.drained.clear()
        self._ledger.open.clear()
        self._words[int(MediaWord.APPLIED_EPOCH)] = reader.epoch
        self.flushed.append((reader.epoch, now))
        self.news = True

    def frames_sent(self, context: int) -> int:
        """Return how many frames of an open context were sent."""
        return self._ledger.open[context][1].frames

    def change_codec(self, codec: int, silence: bytes) -> None:
        """Transcode what waits into another codec, or replace it by its silence."""
        before, self._codec, self.core.silence = self._codec, codec, silence
        if before != codec:
            self.core.change(lambda frame: self._transcoded(frame, before))

    def change_grid(self, ptime_s: float, origin_s: float) -> None:
        if isinstance(self.core.policy, FillingPolicy):
            self.core.policy.ptime_s = ptime_s
        self.core.regrid(ptime_s, origin_s)

    def _transcoded(self, frame: Frame, codec: int) -> Frame:
        table = table_between(codec, self._codec)
        if table is not None:
            return translated(frame, table)
        return frame._replace(payload=self.core.silence, tail=None, head=None, silent=True)

    def take(self, now: float) -> None:
        """Move records from the ring into the core, where it has room, as of when they came."""
        core = self.core
        if core.queued >= CORE_FRAMES:
            return
        codec = self._codec
        batch: list[Frame] = []
        batch_ns = 0
        for kind, context, frame, written_ns, number, key in self.reader.read(TAKE_MOST):
            if batch and (frame is None or written_ns != batch_ns or context != batch[0].context):
                core.push(batch, min(now, batch_ns / 1e9))
                batch = []
            if frame is not None:
                if number and number != codec:
                    frame = self._transcoded(frame, number)
                batch.append(frame)
                batch_ns = written_ns
            elif kind == RecordKind.BEGIN:
                self._ledger.begin(context, number)
                core.begin(context, min(now, written_ns / 1e9), key_of(key))
            else:
                core.finish(context, min(now, written_ns / 1e9))
        if batch:
            core.push(batch, min(now, batch_ns / 1e9))
        if core.drained:  # a context without a frame
            self._drained(time.monotonic_ns())

    def _drained(self, now_ns: int) -> None:
        drained = self.core.drained
        while drained:
            context = drained.popleft()
            self._ledger.open.pop(context, None)
            self.played.append((context, now_ns / 1e9))
            self.news = True
