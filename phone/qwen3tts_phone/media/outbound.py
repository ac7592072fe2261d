"""What was sent of each utterance, slot by slot, written down where the parent can read it."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from qwen3tts_pacer import PacerCore, State
from qwen3tts_pacer.memory import CallMemory, ContextTable, MediaWord, ParentWord
from qwen3tts_pacer.policy import FillingPolicy, FillingSettings
from qwen3tts_pacer.ring import OutboundReader, RecordKind
from qwen3tts_pacer.slot import Frame
from qwen3tts_phone.media.types import RemoteMedia


class _Live:
    """A context that is being sent."""

    __slots__ = ("audible_ns", "entry", "first_ns", "frames", "longest", "starvations", "starved")

    def __init__(self, entry: int) -> None:
        self.entry = entry
        self.frames = 0
        self.first_ns = 0
        self.audible_ns = 0
        self.starvations = 0
        self.starved = 0
        self.longest = 0


class Ledger:
    """The contexts that are open, and their entries in the table; times in nanoseconds."""

    def __init__(self, memory: CallMemory) -> None:
        self._table = ContextTable(memory)
        self.live: dict[int, _Live] = {}
        """By the context's number."""
        self._starved_slots = 0

    def begin(self, context: int, entry: int) -> None:
        """A context was begun; ``entry`` is its place in the table."""
        self.live[context] = _Live(entry)
        self._table.store(entry, context, 0, 0, 0, 0, 0)
        self._table.store_seldom(entry, 0, 0, 0, 0)

    def sent(self, frame: Frame, now_ns: int, starved_slots: int) -> None:
        """A frame went out; so many slots were starved so far, in all contexts."""
        live = self.live[frame.context]
        live.frames += 1
        if live.first_ns == 0:
            live.first_ns = now_ns
        self._table.store(
            live.entry, frame.context, live.frames, frame.start, frame.end, live.first_ns, now_ns
        )
        audible = live.audible_ns == 0 and not frame.silent
        if audible or starved_slots != self._starved_slots:
            if audible:
                live.audible_ns = now_ns
            self._hole(live, starved_slots - self._starved_slots)
            self._starved_slots = starved_slots

    def hole(self, context: int, slots: int) -> None:
        """So many slots in the middle of a context passed: we were late."""
        live = self.live.get(context)
        if live is not None:
            self._hole(live, slots)

    def _hole(self, live: _Live, slots: int) -> None:
        if slots:
            live.starvations += 1
            live.starved += slots
            live.longest = max(live.longest, slots)
        self._table.store_seldom(
            live.entry, live.audible_ns, live.starvations, live.starved, live.longest
        )


def _ulaw_level(code: int) -> int:
    code ^= 0xFF
    level = (((code & 0x0F) << 3) + 0x84 << (code >> 4 & 7)) - 0x84
    return -level if code & 0x80 else level


def _alaw_level(code: int) -> int:
    code ^= 0x55
    segment = code >> 4 & 7
    level = (code & 0x0F) << 4
    level = level + 8 if segment == 0 else (level + 0x108) << segment - 1
    return level if code & 0x80 else -level


def _table(levels: list[int], codes: list[int]) -> bytes:
    """For each level the code whose own is nearest; between two the one of the same sign."""
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


_ULAW = [_ulaw_level(code) for code in range(256)]
_ALAW = [_alaw_level(code) for code in range(256)]
_ULAW_TO_ALAW = _table(_ULAW, _ALAW)
_ALAW_TO_ULAW = _table(_ALAW, _ULAW)
_CODECS = {"PCMU": 1, "PCMA": 2}
_TABLES = {(1, 2): _ULAW_TO_ALAW, (2, 1): _ALAW_TO_ULAW}


def codec_number(payload_name: str) -> int | None:
    """The number that stands for one of the two in a call's ring; None = another codec."""
    return _CODECS.get(payload_name)


def translated(frame: Frame, table: bytes) -> Frame:
    """The same sound in the other law."""
    return frame._replace(
        payload=frame.payload.translate(table),
        tail=None if frame.tail is None else frame.tail.translate(table),
        head=None if frame.head is None else frame.head.translate(table),
    )


def table_between(one: int, other: int) -> bytes | None:
    """How code words of one codec become those of the other; None = they do not."""
    return _TABLES.get((one, other))


def keeping_ptime(remote: RemoteMedia, before: RemoteMedia) -> RemoteMedia:
    """The same codec with the packet duration of before; frames of it are queued."""
    if remote.ptime_ms == before.ptime_ms:
        return remote
    silence = before.silence if remote.payload_name == before.payload_name else ""
    return replace(remote, ptime_ms=before.ptime_ms, silence=silence)


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
