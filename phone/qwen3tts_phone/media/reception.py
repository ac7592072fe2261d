"""What RFC 3550 asks of a receiver: sequence validation (A.1), loss (A.3) and jitter (A.8)."""

from __future__ import annotations

from typing import NamedTuple

from qwen3tts_phone.media.rtp import SEQUENCE_MODULO, timestamp_delta

MAX_DROPOUT = 3000
"""A jump ahead of more packets than this is a restart, or nonsense."""
MAX_MISORDER = 100
"""A packet further behind than this is a restart, or nonsense."""


class ReportFigures(NamedTuple):
    """What a report block says of a stream (RFC 3550 section 6.4.1)."""

    fraction_lost: int
    """Of 256, since the last report."""
    cumulative_lost: int
    """Since the stream began; negative with duplicates."""
    highest_sequence: int
    """Extended by the count of wraps."""
    jitter: int
    """Timestamp units."""


class Reception:
    """One stream as received. Probation is the source lock's task, so the first packet counts."""

    def __init__(self, clock_hz: int = 8000) -> None:
        self.clock_hz = clock_hz
        """Of the timestamps; see `change_clock`."""
        self.received = 0
        """Packets, duplicates included (A.3)."""
        self.jitter_s = 0.0
        self._base = -1
        self._highest = 0  # extended sequence number
        self._bad = -1
        self._transit: tuple[float, int] | None = None
        self._expected_prior = 0
        self._received_prior = 0

    @property
    def highest(self) -> int:
        """The highest extended sequence number; -1 before the first packet."""
        return self._highest if self._base >= 0 else -1

    @property
    def expected(self) -> int:
        """Packets that should have come."""
        return self._highest - self._base + 1 if self._base >= 0 else 0

    @property
    def lost(self) -> int:
        """Packets that did not come; negative with duplicates."""
        return self.expected - self.received

    def accept(self, sequence: int) -> int:
        """The extended sequence number; -1 = out of bounds; a restart begins a new count.

        After a restart `expected` is 1: what was known of the stream before is gone (A.1).
        """
        if self._base < 0:
            return self._begin(sequence)
        ahead = (sequence - self._highest) % SEQUENCE_MODULO
        if ahead < MAX_DROPOUT:
            self._highest += ahead
            extended = self._highest
        elif ahead <= SEQUENCE_MODULO - MAX_MISORDER:
            # A.1: two in sequence after a large jump mean that the other side restarted.
            if sequence == self._bad:
                return self._begin(sequence)
            self._bad = (sequence + 1) % SEQUENCE_MODULO
            return -1
        else:  # duplicate or out of order
            extended = self._highest + ahead - SEQUENCE_MODULO
            if extended < 0:
                return -1
        self.received += 1
        return extended

    def arrived(self, timestamp: int, at: float) -> float:
        """Count a packet's arrival into the jitter; the jitter in seconds (A.8)."""
        if self._transit is not None:
            earlier_at, earlier_timestamp = self._transit
            ticks = timestamp_delta(timestamp, earlier_timestamp)
            deviation = abs(at - earlier_at - ticks / self.clock_hz)
            if deviation < 1.0:  # a pause or a jump of the clock is no jitter
                self.jitter_s += (deviation - self.jitter_s) / 16
        self._transit = (at, timestamp)
        return self.jitter_s

    def change_clock(self, clock_hz: int) -> None:
        """Packets of another clock follow: they are not compared with the last (RFC 7160)."""
        self.clock_hz = clock_hz
        self._transit = None

    def report(self) -> ReportFigures:
        """The figures since the last call, for a report block."""
        expected, received = self.expected, self.received
        interval = expected - self._expected_prior
        lost = interval - (received - self._received_prior)
        self._expected_prior, self._received_prior = expected, received
        fraction = (lost << 8) // interval if interval > 0 and lost > 0 else 0
        cumulative = max(-0x80_0000, min(0x7F_FFFF, self.lost))
        return ReportFigures(
            min(255, fraction),
            cumulative,
            self._highest % (1 << 32),
            int(self.jitter_s * self.clock_hz),
        )

    def _begin(self, sequence: int) -> int:
        # One cycle in hand, so that packets before the first keep a positive number.
        self._base = self._highest = SEQUENCE_MODULO + sequence
        self._bad = -1
        self.received = 1
        self._expected_prior = self._received_prior = 0
        return self._highest
