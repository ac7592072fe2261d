"""Rings of a call's shared memory: frames towards the wire, and frames received.

Each has one producer and one consumer, in two processes, and neither waits for the other. A ring is
an array of records of 8 words and an arena for their bytes.

**Flush.** `Outbound.interrupt` stores the end of the ring and raises the epoch. The reader checks
the epoch before every frame and jumps there, so an interruption costs the same for any queue.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from qwen3tts_pacer.memory import RECORD, Area, CallMemory, MediaWord, ParentWord, fence
from qwen3tts_pacer.policy import LIVE_KEY
from qwen3tts_pacer.slot import Frame

CONTROL_RESERVE = 64
"""Outbound records that frames may not use, so that a finish always finds room."""

_WORD_MASK = (1 << 64) - 1
_HALF = 0xFFFF
# Plain integers, for an enum's attribute costs as much as the access itself.
_OUT_HEAD = int(ParentWord.OUT_HEAD)
_OUT_TAIL = int(MediaWord.OUT_TAIL)


_FRAME = 1


class RecordKind(IntEnum):
    """Kind of an outbound record."""

    FRAME = _FRAME
    BEGIN = 2
    FINISH = 3


Record = tuple[int, int, Frame | None, int, int, int]
"""Outbound record as read: kind, context, frame or None, time of writing (CLOCK_MONOTONIC, ns). For
a frame then the number of its codec; for a begin its entry in the table and its `key_number`. A
plain tuple, one for each frame of each call."""

_LIVE = 1


def key_number(key: str) -> int:
    """Return the 64 bits that stand for a key of the filling policy; 0 = none."""
    if key == LIVE_KEY:
        return _LIVE
    digest = hashlib.blake2b(key.encode(), digest_size=8).digest() if key else b""
    return int.from_bytes(digest, "little")


def key_of(number: int) -> str:
    """Return a key by its number: `LIVE_KEY`, or a name as good as the key itself."""
    return LIVE_KEY if number == _LIVE else f"{number:x}"


class InboundFrame(NamedTuple):
    """Received frame, in play order."""

    payload: bytes
    """As received; empty for a packet that did not come."""
    payload_type: int
    timestamp: int
    """Ticks of the payload type's clock, not wrapping; a gap is a pause of the sender."""
    at: float
    """Arrival (CLOCK_MONOTONIC, seconds)."""
    sequence: int
    marker: bool
    concealed: bool
    """Stands for a packet that did not come in time: for packet loss concealment."""


class RingFull(BufferError):
    """No room for another begin or finish record."""


class _Writer:
    def __init__(
        self, memory: CallMemory, area: Area, head_word: int, tail_word: int, reserve: int
    ) -> None:
        self._map = memory.map
        self._words = memory.words
        self._records, self._slots, self._arena, self._arena_bytes = area
        self._head_word, self._tail_word = head_word, tail_word
        self._reserve = reserve
        self._head = 0
        self._position = 0  # in the arena, counted without wrapping
        self._ends = [0] * self._slots

    def roomy(self) -> bool:
        """Return whether an eighth of the slots and of the arena is free."""
        tail = self._words[self._tail_word]
        if self._head - tail > self._slots - self._reserve - self._slots // 8:
            return False
        released = self._ends[(tail - 1) % self._slots] if tail else 0
        return self._position - released <= self._arena_bytes - self._arena_bytes // 8

    def put(self, w0: int, w1: int, w2: int, w3: int, w4: int, w5: int, blob: bytes) -> bool:
        tail = self._words[self._tail_word]
        head = self._head
        if head - tail >= self._slots - self._reserve:
            return False
        return self._store(tail, head, (w0, w1, w2, w3, w4, w5), blob)

    def put_control(self, w0: int, w1: int, w2: int, w3: int, w4: int, w5: int) -> bool:
        tail = self._words[self._tail_word]
        head = self._head
        if head - tail >= self._slots - 1:  # the last one's end must be kept for `_store`
            return False
        return self._store(tail, head, (w0, w1, w2, w3, w4, w5), b"")

    def _store(self, tail: int, head: int, words: tuple[int, ...], blob: bytes) -> bool:
        size = len(blob)
        position = self._position
        arena_bytes = self._arena_bytes
        if position % arena_bytes + size > arena_bytes:  # never across the arena's end
            position += arena_bytes - position % arena_bytes
        end = position + size
        released = self._ends[(tail - 1) % self._slots] if tail else 0
        if end - released > arena_bytes:
            return False
        at = position % arena_bytes
        if size:
            start = self._arena + at
            self._map[start : start + size] = blob
        index = head % self._slots
        RECORD.pack_into(self._map, self._records + index * RECORD.size, *words, at, size)
        self._ends[index] = end
        self._position = end
        self._head = head + 1
        fence()
        self._words[self._head_word] = head + 1
        return True


class Outbound(_Writer):
    """Parent's end of the outbound ring."""

    def __init__(self, memory: CallMemory) -> None:
        super().__init__(
            memory,
            memory.out_area(),
            ParentWord.OUT_HEAD,
            MediaWord.OUT_TAIL,
            CONTROL_RESERVE,
        )
        self.epoch = 0
        self._begun = 0

    def begin(self, context: int, entry: int, key: int = 0) -> None:
        """Open a context (numbers rise); ``entry`` is its place in the table (0 to 63)."""
        self._control(RecordKind.BEGIN, context, entry, key)
        self._begun = context + 1

    def finish(self, context: int) -> None:
        self._control(RecordKind.FINISH, context, 0, 0)

    def write(self, frames: Iterable[Frame], codec: int = 0) -> int:
        """Queue frames without waiting; return how many were accepted.

        ``codec`` is a number below 256 for their encoding; 0 = the one in use.
        """
        count = 0
        mark = codec << 1
        now = time.monotonic_ns()
        for frame in frames:
            payload, tail, head = frame.payload, frame.tail or b"", frame.head or b""
            if not payload or max(len(payload), len(tail), len(head)) > _HALF:
                raise ValueError(f"a frame of {len(payload)} bytes: 1 to {_HALF} can be queued")
            kind = _FRAME | len(payload) << 8 | len(tail) << 24 | len(head) << 40
            if not self.put(
                kind,
                frame.context,
                frame.start,
                frame.end,
                now,
                frame.silent | mark,
                payload + tail + head,
            ):
                break
            count += 1
        return count

    def interrupt(self) -> int:
        self._words[ParentWord.EPOCH_HEAD] = self._head
        self._words[ParentWord.THROUGH] = self._begun
        fence()
        self.epoch += 1
        self._words[ParentWord.EPOCH] = self.epoch
        return self.epoch

    def queued(self) -> int:
        return self._head - self._words[self._tail_word]

    def _control(self, kind: RecordKind, context: int, entry: int, key: int) -> None:
        if not self.put_control(kind, context, key, 0, time.monotonic_ns(), entry):
            raise RingFull(f"{self._slots} records wait; await room() between contexts")


class OutboundReader:
    """Media process's end of the outbound ring."""

    def __init__(self, memory: CallMemory) -> None:
        self._map = memory.map
        self._words = memory.words
        self._records, self._slots, self._arena, _ = memory.out_area()
        self.tail = 0
        self.epoch = 0
        self.through = -1
        """Highest context of the last flush; -1 = none."""

    def flushed(self) -> bool:
        """Apply a raised epoch, skipping what it flushes; return whether there was one."""
        epoch = self._words[ParentWord.EPOCH]
        if epoch == self.epoch:
            return False
        fence()
        self.epoch = epoch
        self.tail = max(self.tail, self._words[ParentWord.EPOCH_HEAD])
        self.through = self._words[ParentWord.THROUGH] - 1
        self._words[MediaWord.OUT_TAIL] = self.tail
        return True

    def read(self, limit: int) -> list[Record]:
        tail = self.tail
        count = self._words[_OUT_HEAD] - tail
        if count == 0:
            return []
        fence()
        records: list[Record] = []
        buffer, slots, first_record, arena = self._map, self._slots, self._records, self._arena
        unpack = RECORD.unpack_from
        for index in range(tail, tail + min(count, limit)):
            kind, context, start, end, written, entry, at, size = unpack(
                buffer, first_record + index % slots * 64
            )
            if size:
                at += arena
                tail_at = at + (kind >> 8 & _HALF)
                head_at = tail_at + (kind >> 24 & _HALF)
                frame = Frame(
                    buffer[at:tail_at],
                    buffer[tail_at:head_at] or None,
                    buffer[head_at : at + size] or None,
                    context,
                    start,
                    end,
                    entry & 1 == 1,
                )
                records.append((_FRAME, context, frame, written, entry >> 1, 0))
            else:
                records.append((kind & 0xFF, context, None, written, entry, start))
        self.tail = tail = tail + len(records)
        self._words[_OUT_TAIL] = tail
        return records


class InboundWriter(_Writer):
    """Media process's end of the inbound ring."""

    def __init__(self, memory: CallMemory) -> None:
        super().__init__(memory, memory.in_area(), MediaWord.IN_HEAD, ParentWord.IN_TAIL, 1)

    def write(self, frame: InboundFrame) -> bool:
        flags = frame.concealed | frame.marker << 1
        at_ns = int(frame.at * 1e9)
        # A sender may set its timestamps back to before its first: two's complement.
        timestamp = frame.timestamp & _WORD_MASK
        return self.put(
            flags, frame.payload_type, timestamp, frame.sequence, at_ns, 0, frame.payload
        )


class InboundReader:
    """Parent's end of the inbound ring."""

    def __init__(self, memory: CallMemory) -> None:
        self._map = memory.map
        self._words = memory.words
        self._records, self._slots, self._arena, _ = memory.in_area()
        self._tail = 0

    def waiting(self) -> int:
        return self._words[MediaWord.IN_HEAD] - self._tail

    def read(self, limit: int = 1 << 30) -> list[InboundFrame]:
        frames = []
        head = min(self._words[MediaWord.IN_HEAD], self._tail + limit)
        fence()
        for index in range(self._tail, head):
            flags, payload_type, timestamp, sequence, at_ns, _, at, size = RECORD.unpack_from(
                self._map, self._records + index % self._slots * RECORD.size
            )
            first = self._arena + at
            frames.append(
                InboundFrame(
                    self._map[first : first + size],
                    payload_type,
                    timestamp - (timestamp >> 63 << 64),
                    at_ns / 1e9,
                    sequence,
                    bool(flags & 2),
                    bool(flags & 1),
                )
            )
        self._tail = head
        self._words[ParentWord.IN_TAIL] = head
        return frames
