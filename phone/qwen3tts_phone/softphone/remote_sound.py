"""What a browser says, as frames of samples: its packets in order, decoded, holes filled (pure).

The same parts as behind the media process of a call over SIP. What comes in order is heard at once:
a caller who cuts in must not wait for a buffer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.ring import InboundFrame
from qwen3tts_phone.call_events import HeardFrame
from qwen3tts_phone.hearing import Hearing
from qwen3tts_phone.media.jitter import JitterBuffer
from qwen3tts_phone.media.reception import Reception, ReportFigures


@dataclass(frozen=True, slots=True)
class SoundPacket:
    """One RTP packet of sound, as it came."""

    ssrc: int
    sequence: int
    """16 bits."""
    timestamp: int
    """32 bits, ticks of the codec's clock."""
    payload_type: int
    payload: bytes
    marker: bool = False


class RemoteSound:
    """One call's. Times are seconds of the clock."""

    def __init__(self, payload: Payload) -> None:
        self._payload = payload
        self._hearing = Hearing({payload.payload_type: payload}, comfort_noise=frozenset())
        self._reception = Reception(payload.clock_hz)
        self._jitter = JitterBuffer()
        self._jitter.clock_hz = payload.clock_hz
        self._lost_before = 0
        self.ssrc: int | None = None
        """The stream that is listened to; None before the first packet."""
        self.received = 0
        self.octets = 0
        """Of payload."""
        self.unknown = 0
        """Packets in another format than agreed."""
        self.streams = 0
        """Streams that were listened to, one after the other."""
        self.first_at: float | None = None
        self.last_at: float | None = None

    def take(self, packet: SoundPacket, at: float) -> list[HeardFrame]:
        """A packet came ``at``; what is heard now, in order."""
        if packet.payload_type != self._payload.payload_type:
            self.unknown += 1
            return []
        rest: list[InboundFrame] = []
        if packet.ssrc != self.ssrc:
            if self.ssrc is not None:
                rest = self._restart()
            self.ssrc = packet.ssrc
            self.streams += 1
        before = self._reception.received
        extended = self._reception.accept(packet.sequence)
        if extended < 0:
            return self._heard(rest)
        if self._reception.received == 1 and before:  # RFC 3550 A.1: the sender restarted
            rest += self._jitter.reset()
        self.received += 1
        self.octets += len(packet.payload)
        self.first_at = at if self.first_at is None else self.first_at
        self.last_at = at
        jitter_s = self._reception.arrived(packet.timestamp, at)
        if not packet.payload:  # RFC 3550 has no such packet of sound; its place is no hole
            return self._heard(rest + self._jitter.skip(extended, at))
        frames = self._jitter.push(
            extended,
            packet.timestamp,
            packet.payload,
            packet.payload_type,
            packet.marker,
            at,
            jitter_s,
        )
        return self._heard(rest + frames)

    def due(self, now: float) -> list[HeardFrame]:
        """What is heard because a packet is waited for no longer."""
        return self._heard(self._jitter.due(now)) if self._jitter.pending else []

    def next_deadline(self) -> float | None:
        """When `due` has something to give; None = there is no hole."""
        return self._jitter.next_deadline()

    def report(self) -> ReportFigures:
        """How the stream fares since the last report (RFC 3550 section 6.4.1)."""
        return self._reception.report()

    @property
    def lost(self) -> int:
        """Packets that never came, of all streams."""
        return max(0, self._lost_before + self._reception.lost)

    @property
    def jitter_s(self) -> float:
        """How unevenly packets come."""
        return self._reception.jitter_s

    @property
    def wait_s(self) -> float:
        """How long a missing packet is waited for now."""
        return self._jitter.wait_s

    @property
    def late(self) -> int:
        """Packets that came too late."""
        return self._jitter.late

    @property
    def duplicates(self) -> int:
        """Packets that had come before."""
        return self._jitter.duplicates

    @property
    def concealed(self) -> int:
        """Frames that were made up."""
        return self._jitter.concealed

    @property
    def bursts(self) -> tuple[int, int]:
        """Runs of packets that did not come in time, and the packets in them."""
        return self._jitter.bursts, self._jitter.burst_lost

    @property
    def undecodable(self) -> int:
        """Packets that were no frame of their format."""
        return self._hearing.undecodable

    def _restart(self) -> list[InboundFrame]:
        rest = self._jitter.reset()
        self._lost_before += max(0, self._reception.lost)
        self._reception = Reception(self._payload.clock_hz)
        return rest

    def _heard(self, frames: Iterable[InboundFrame]) -> list[HeardFrame]:
        return [heard for frame in frames for heard in self._hearing.take(frame)]
