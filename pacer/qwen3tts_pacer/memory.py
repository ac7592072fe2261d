"""Shared memory of one call: layout, words, playout of each context.

A memfd is mapped by the process that makes speech (the *parent*) and by the process that owns the
sockets (the *media* process). Each word has one writer; words are aligned 8 bytes, so none is read
half written, and an index is stored after what it announces. ::

    parent words    head of the outbound ring, flush epoch, tail of the inbound ring, wanted notices
    media words     tail of the outbound ring, applied epoch, head of the inbound ring, counters
    contexts        64 entries, written by the media process: playout of each context
    gains           the latest 64 changes of the attenuation, by the media process
    outbound ring   records and an arena of bytes, towards the wire (`ring.Outbound`)
    inbound ring    the same, from the wire (`ring.InboundWriter`)
"""

from __future__ import annotations

import fcntl
import mmap
import os
import platform
import struct
import threading
from enum import IntEnum
from typing import NamedTuple

CONTEXTS = 64
"""Entries in the table of contexts, used in turn."""
RECORD = struct.Struct("@8Q")
"""Record of a ring: six words, offset and size of its bytes in the arena."""
LEAST_SLOTS = 128
LEAST_BYTES = 4096

_PAGE = 4096
_SELDOM = 3 * _PAGE // 8
GAINS = _SELDOM + 4 * CONTEXTS
"""First word of the log of gains: 2 words an entry."""
GAIN_ENTRIES = 64
_WORD = struct.Struct("@Q")
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_TOTAL_ORDER = platform.machine().lower() in ("x86_64", "amd64", "i686")


class ParentWord(IntEnum):
    """Words that only the parent writes."""

    OUT_SLOTS = 0
    OUT_BYTES = 1
    IN_SLOTS = 2
    IN_BYTES = 3
    OUT_HEAD = 8
    EPOCH = 9
    EPOCH_HEAD = 10
    THROUGH = 11
    """One more than the highest context that the epoch flushes."""
    WANT = 12
    """Bits of `Want`."""
    IN_TAIL = 13
    DUCK = 14
    """Attenuation of speech, tenths of a decibel; 0 = full level."""


class Want(IntEnum):
    """Notices that the parent waits for."""

    ROOM = 1
    INBOUND = 2


class MediaWord(IntEnum):
    """Words that only the media process writes; counters unless stated."""

    OUT_TAIL = 512
    APPLIED_EPOCH = 513
    SENT = 514
    SPEECH_SENT = 515
    SKIPPED = 516
    """Slots that passed without a packet because the machine was late."""
    STARVED = 517
    SEND_ERRORS = 518
    RECEIVED = 519
    """Valid packets of the locked source."""
    LOST = 520
    LATE = 521
    DUPLICATES = 522
    CONCEALED = 523
    STRANGERS = 524
    MALFORMED = 525
    UNKNOWN_PAYLOAD = 526
    INBOUND_OVERRUN = 527
    """Received frames dropped because the parent did not read."""
    DTMF_IN = 528
    DTMF_OUT = 529
    JITTER_NS = 530
    """Interarrival jitter (RFC 3550 A.8)."""
    DEPTH_NS = 531
    """Present wait of the jitter buffer for a missing packet."""
    RTCP_IN = 532
    RTCP_OUT = 533
    REMOTE_LOST = 534
    """Our packets that the peer reports lost."""
    REMOTE_FRACTION = 535
    """The peer's fraction lost, 0 to 256."""
    REMOTE_JITTER_NS = 536
    ROUND_TRIP_NS = 537
    IN_HEAD = 538
    LATENESS_MAX_NS = 539
    OCTETS_SENT = 540
    OCTETS_RECEIVED = 541
    LOSS_BURSTS = 542
    """Runs of lost or late packets."""
    BURST_LOST = 543
    SRTP_FAILED = 544
    SRTP_REPLAYED = 545
    NOISE_IN = 546
    NOISE_OUT = 547
    FIRST_SENT_NS = 548
    """CLOCK_MONOTONIC; 0 = not yet. Likewise the next two."""
    FIRST_RECEIVED_NS = 549
    LAST_RECEIVED_NS = 550
    SOURCES = 551
    """Streams received, one after the other."""
    REMOTE_FRACTION_MAX = 552
    ROUND_TRIP_MAX_NS = 553
    KEYS_IGNORED = 554
    """Keys faster than a person presses them."""
    EVENTS_DROPPED = 555
    """Events of the far end that were not passed on."""
    GAIN_CHANGES = 556
    """Entries written to the log of gains (`gain.GainWriter`)."""


class ContextSent(NamedTuple):
    """Playout of one context by the media process."""

    context: int
    frames: int
    start: int
    """First sample of the last frame sent."""
    end: int
    """One past the last sample sent."""
    first_ns: int
    """When the first frame was sent (CLOCK_MONOTONIC); 0 = not yet."""
    last_ns: int
    audible_ns: int = 0
    """When the first frame with sound was sent; 0 = not yet."""
    starvations: int = 0
    """Underruns, and lateness of whole packets, in mid-utterance."""
    starved_slots: int = 0
    """Slots of silence because of these."""
    longest_slots: int = 0
    """Most of them in a row."""


class CallMemory:
    """Mapping of a call's memory, created by the parent and attached by the media process.

    512 slots are 10 s of 20 ms frames.
    """

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self.size = size
        self.map = mmap.mmap(fd, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self._view = memoryview(self.map)
        self.words = self._view.cast("Q")
        self._closed = False

    @classmethod
    def create(
        cls,
        out_slots: int = 512,
        out_bytes: int = 256 * 1024,
        in_slots: int = 256,
        in_bytes: int = 64 * 1024,
    ) -> CallMemory:
        """Create a zeroed memory; ``fd`` may be passed to another process."""
        if min(out_slots, in_slots) < LEAST_SLOTS:
            raise ValueError(f"a ring needs at least {LEAST_SLOTS} slots")
        if min(out_bytes, in_bytes) < LEAST_BYTES or (out_bytes | in_bytes) % 8:
            raise ValueError(f"an arena needs at least {LEAST_BYTES} bytes, in whole words")
        size = 4 * _PAGE + (out_slots + in_slots) * RECORD.size + out_bytes + in_bytes
        fd = os.memfd_create("call", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)  # no one can shrink it under the other
            memory = cls(fd, size)
        except BaseException:
            os.close(fd)
            raise
        words = memory.words
        words[ParentWord.OUT_SLOTS], words[ParentWord.OUT_BYTES] = out_slots, out_bytes
        words[ParentWord.IN_SLOTS], words[ParentWord.IN_BYTES] = in_slots, in_bytes
        return memory

    @classmethod
    def attach(cls, fd: int) -> CallMemory:
        return cls(fd, os.fstat(fd).st_size)

    def out_area(self) -> Area:
        words = self.words
        slots, arena = words[ParentWord.OUT_SLOTS], words[ParentWord.OUT_BYTES]
        start = 4 * _PAGE
        return Area(start, slots, start + slots * RECORD.size, arena)

    def in_area(self) -> Area:
        words = self.words
        start = self.out_area().arena + words[ParentWord.OUT_BYTES]
        slots, arena = words[ParentWord.IN_SLOTS], words[ParentWord.IN_BYTES]
        return Area(start, slots, start + slots * RECORD.size, arena)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.words.release()
        self._view.release()
        self.map.close()
        os.close(self.fd)


class Area(NamedTuple):
    """Place of a ring in the memory."""

    records: int
    slots: int
    arena: int
    arena_bytes: int


_fence_lock = threading.Lock()


def fence() -> None:
    """Order stores on machines with a weak memory model (x86 has a strong one)."""
    if not _TOTAL_ORDER:  # pragma: no cover
        with _fence_lock:
            pass


class ContextTable:
    """Playout of each context: written by the media process, read by the parent.

    An entry stands between two copies of a count, the first changed before it and the last after
    it, so a reader never mixes two states. Rare values are in words of the next page, so that
    publishing a frame is one call.
    """

    def __init__(self, memory: CallMemory) -> None:
        self._map = memory.map
        self._words = memory.words
        self._count = 0

    def store(
        self,
        entry: int,
        context: int,
        frames: int,
        start: int,
        end: int,
        first_ns: int,
        last_ns: int,
    ) -> None:
        self._count = count = self._count + 1
        # One call, for it is made with every frame; the fields are stored in their order.
        RECORD.pack_into(
            self._map,
            2 * _PAGE + entry * 64,
            count,
            context,
            frames,
            start,
            end,
            first_ns,
            last_ns,
            count,
        )

    def store_seldom(
        self, entry: int, audible_ns: int, starvations: int, starved: int, longest: int
    ) -> None:
        at = _SELDOM + entry * 4
        words = self._words
        words[at] = audible_ns
        words[at + 1] = starvations
        words[at + 2] = starved
        words[at + 3] = longest

    def load(self, entry: int) -> ContextSent:
        offset = 2 * _PAGE + entry * 64
        sent: tuple[int, ...] = ()
        for _ in range(1000):  # bounded: the writer may have died in the middle
            # The other way round from the writer: the last count first, and the first one last.
            (last,) = _WORD.unpack_from(self._map, offset + 56)
            fence()
            sent = RECORD.unpack_from(self._map, offset)[1:7]
            fence()
            (first,) = _WORD.unpack_from(self._map, offset)
            if first == last:
                break
        at = _SELDOM + entry * 4
        return ContextSent(*sent, *self._words[at : at + 4])
