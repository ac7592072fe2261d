"""Inbound RTP of one call: validation, loss, jitter (RFC 3550 A.1, A.3, A.8), DTMF, play order."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple

from qwen3tts_pacer.memory import CallMemory
from qwen3tts_pacer.ring import InboundFrame, InboundWriter
from qwen3tts_phone.media import rtp
from qwen3tts_phone.media.dtmf import DtmfReceiver, KeyDown, KeyUp
from qwen3tts_phone.media.jitter_buffer import JitterBuffer
from qwen3tts_phone.media.rtp import SEQUENCE_MODULO, timestamp_delta
from qwen3tts_phone.media.source import Address, SourceLock, Verdict
from qwen3tts_phone.media.types import (
    CLOCK_HZ,
    Dtmf,
    DtmfStarted,
    LegSpec,
    MediaEvent,
    MediaStarted,
    RemoteMedia,
)

MAX_DROPOUT = 3000
"""A greater jump ahead is a restart, or invalid."""
MAX_MISORDER = 100
"""A packet further behind is a restart, or invalid."""


class ReportFigures(NamedTuple):
    """Values of a report block (RFC 3550 section 6.4.1)."""

    fraction_lost: int
    """Of 256, since the last report."""
    cumulative_lost: int
    """Since the stream began; negative with duplicates."""
    highest_sequence: int
    """Extended by the count of wraps."""
    jitter: int
    """Timestamp units."""


class Reception:
    """Reception of one stream. Probation is the source lock's task, so the first packet counts."""

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
        return self._highest if self._base >= 0 else -1

    @property
    def expected(self) -> int:
        return self._highest - self._base + 1 if self._base >= 0 else 0

    @property
    def lost(self) -> int:
        return self.expected - self.received

    def accept(self, sequence: int) -> int:
        """Return the extended sequence number; -1 = out of bounds.

        A restart begins a new count (A.1).
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
        if self._transit is not None:
            earlier_at, earlier_timestamp = self._transit
            ticks = timestamp_delta(timestamp, earlier_timestamp)
            deviation = abs(at - earlier_at - ticks / self.clock_hz)
            if deviation < 1.0:  # a pause or a jump of the clock is no jitter
                self.jitter_s += (deviation - self.jitter_s) / 16
        self._transit = (at, timestamp)
        return self.jitter_s

    def change_clock(self, clock_hz: int) -> None:
        """Change the clock: the next packet is not compared with the last (RFC 7160)."""
        self.clock_hz = clock_hz
        self._transit = None

    def report(self) -> ReportFigures:
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


DATAGRAM_MOST = 2048
"""Longer datagrams are cut by the socket and refused."""
SO_TIMESTAMPNS = 35
"""Linux: kernel arrival times, as control messages of the same number."""
STAMP = struct.Struct("@qq")
ANCILLARY = socket.CMSG_SPACE(STAMP.size)


class Receiver:
    """Validates datagrams, keeps the statistics, and passes frames on in play order."""

    def __init__(
        self,
        memory: CallMemory,
        spec: LegSpec,
        remote: RemoteMedia,
        tell: Callable[[MediaEvent], None],
    ) -> None:
        self._tell = tell
        self._inbound = InboundWriter(memory)
        self._spec = spec
        self.lock = SourceLock(strict=not spec.symmetric)
        self.reception = Reception(remote.clock_hz)
        self.lost_before = 0
        """Packets lost of earlier streams."""
        self.keys = DtmfReceiver()
        self.jitter = JitterBuffer(max_wait_s=spec.jitter_max_s)
        self.received = 0
        self.octets = 0
        """Bytes of payload."""
        self.first_at = 0.0
        """Arrival of the first valid packet, seconds; 0 = none yet."""
        self.sources = 0
        """Streams received, one after the other."""
        self.noise_in = 0
        self.malformed = 0
        self.unknown_payload = 0
        self.overrun = 0
        self.dtmf_in = 0
        self.handed = 0
        self.waiting = False
        """Whether `due` is to be called at every slot."""
        self.latched = False
        """Set when a source was latched; the caller clears it."""
        self._receiving = True
        self._clocks: dict[int, int] = {}
        self._event_types: frozenset[int] = frozenset()
        self._event_hz = CLOCK_HZ
        self._noise_type: int | None = None
        self.update(remote)

    def update(self, remote: RemoteMedia) -> None:
        """Apply a renegotiation: payload types, direction, and another source may come."""
        if self._receiving and not remote.receive:
            self._hand(self.jitter.pause())  # what is said meanwhile is no hole
        self._receiving = remote.receive
        self._noise_type = remote.comfort_noise_pt
        self._clocks = remote.clocks()
        if self._noise_type is not None:
            self._clocks.setdefault(self._noise_type, CLOCK_HZ)
        # A number of ours may be what the far end says its audio with: then it is that.
        events = {each for each in remote.telephone_event_in if each != remote.payload_type}
        if remote.telephone_event_pt is not None:
            events.add(remote.telephone_event_pt)
        self._event_types = frozenset(events)
        for number in self._event_types:
            self._clocks.pop(number, None)
        self.jitter.noise_type = -1 if self._noise_type is None else self._noise_type
        self._event_hz = remote.telephone_event_hz
        self.lock.update(
            (remote.host, remote.port),
            signalling=remote.signalling_host,
            authenticated=remote.srtp_receive is not None,
        )

    def datagram(self, data: bytes, address: Address, at: float) -> None:
        """Take one datagram of the RTP port that arrived at ``at`` (no RTCP)."""
        try:
            packet = rtp.parse(data)
        except rtp.RtpError:
            self.malformed += 1
            return
        kind = packet.payload_type
        clock_hz = self._clocks.get(kind)
        if clock_hz is None and kind not in self._event_types:
            self.unknown_payload += 1
            lock = self.lock
            if address == lock.address and packet.ssrc == lock.ssrc:
                self._pass_over(packet.sequence, at)
            return
        reopened = self.lock.open
        verdict = self.lock.offer(address, packet.ssrc, packet.sequence, at)
        if verdict is Verdict.ACCEPTED:
            self.latched = self.latched or reopened
        elif verdict is Verdict.LOCKED:
            self._restart()
            self.latched = True
            self.sources += 1
            self.first_at = self.first_at or at
            self._tell(MediaStarted(address, packet.ssrc, at))
        else:
            return
        reception = self.reception
        before = reception.received
        extended = reception.accept(packet.sequence)
        if extended < 0:
            self.malformed += 1
            return
        if reception.received == 1 and before:  # RFC 3550 A.1: the sender restarted
            self._hand(self.jitter.reset())
        self.received += 1
        self.octets += len(packet.payload)
        if clock_hz is None:
            self._known(self.keys.receive(packet.payload, packet.timestamp, at))
            # Its place in the sequence is no hole of the audio.
            self._hand(self.jitter.skip(extended, at))
            self.waiting = True
            return
        if clock_hz != reception.clock_hz:
            reception.change_clock(clock_hz)
            self.jitter.clock_hz = clock_hz
        jitter_s = reception.arrived(packet.timestamp, at)
        if kind == self._noise_type:
            self.noise_in += 1
        if not self._receiving:
            return
        self._hand(
            self.jitter.push(
                extended,
                packet.timestamp,
                packet.payload,
                kind,
                packet.marker,
                at,
                jitter_s,
            )
        )
        if self.jitter.pending:
            self.waiting = True

    def due(self, now: float) -> None:
        if self.jitter.pending:
            self._hand(self.jitter.due(now))
        if self.keys.pressed:
            self._known(self.keys.due(now))
        self.waiting = bool(self.jitter.pending) or self.keys.pressed

    @property
    def lost(self) -> int:
        return max(0, self.lost_before + self.reception.lost)

    def _restart(self) -> None:
        self._hand(self.jitter.reset())
        self.lost_before += max(0, self.reception.lost)
        self.reception = Reception(self.reception.clock_hz)

    def _pass_over(self, sequence: int, at: float) -> None:
        """Count a packet of an unknown payload type (RFC 3550 section 5.1): it is no hole."""
        reception = self.reception
        before = reception.received
        extended = reception.accept(sequence)
        if extended < 0:
            return
        self.lock.heard_at = at
        if reception.received == 1 and before:
            self._hand(self.jitter.reset())
        if self._receiving:
            self._hand(self.jitter.skip(extended, at))
            self.waiting = True

    def _hand(self, frames: Iterable[InboundFrame]) -> None:
        for frame in frames:
            if self._inbound.write(frame):
                self.handed += 1
            else:
                self.overrun += 1

    def _known(self, changes: list[KeyDown | KeyUp]) -> None:
        for change in changes:
            if isinstance(change, KeyDown):
                self.dtmf_in += 1
                self._tell(DtmfStarted(change.digit, change.at))
            else:
                duration_ms = change.duration * 1000 // self._event_hz
                self._tell(Dtmf(change.digit, duration_ms, change.at))
