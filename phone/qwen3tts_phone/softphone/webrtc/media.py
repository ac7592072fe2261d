"""Outbound and inbound media of a WebRTC call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.clock import Clock
from qwen3tts_pacer.policy import Filling, FillingPolicy
from qwen3tts_pacer.ring import InboundFrame
from qwen3tts_pacer.slot import Kind, Slot
from qwen3tts_phone.audio.call_sink import PacerCallSink, SinkPacing
from qwen3tts_phone.audio.frames import HeardFrame
from qwen3tts_phone.audio.inbound import AudioDecoder
from qwen3tts_phone.media.jitter_buffer import JitterBuffer
from qwen3tts_phone.media.receiver import Reception, ReportFigures
from qwen3tts_speech.sink import Played

PLAYOUT_DELAY_S = 0.06
"""Playout delay of the browser until it reports one."""
MAX_PLAYOUT_DELAY_S = 1.0

LATE_MS = 100
"""Latest sending after a slot's time: the event loop is shared, and a browser's buffer adapts to
late packets, where skipped ones would have to be concealed."""

Put = Callable[[bytes, int], None]


class WebSink(PacerCallSink):
    """`CallSink` that sends one packet a slot of the pacer, silence included.

    A browser's jitter buffer estimates the network by steadily arriving packets.
    """

    def __init__(
        self,
        put: Put,
        payload: Payload,
        *,
        ptime_ms: int = 20,
        clock: Clock | None = None,
        policy: Filling | None = None,
    ) -> None:
        super().__init__(
            self._packet,
            payload,
            SinkPacing(ptime_ms, PLAYOUT_DELAY_S, late_ms=LATE_MS),
            clock=clock,
            policy=policy or FillingPolicy(ptime_s=ptime_ms / 1000),
        )
        self.sent_packets = 0
        self.sent_octets = 0
        self.first_packet_at: float | None = None
        self.latest_s = 0.0
        self._put = put
        self._sound_until = self.clock.now()
        self._longest_gap_s = 0.0

    # --- FrameSink

    def interrupt(self) -> None:
        now = self.clock.now()
        self.interruptions += 1
        # Silence begins when the last frame of speech is over.
        self._silence(now, max(now, self._sound_until))
        self._positions.clear()

    # --- CallSink

    def follow(self) -> None: ...

    def gone(self) -> None: ...

    # --- statistics

    @property
    def queued_s(self) -> float:
        return self._queued_s

    def set_playout_delay(self, delay_s: float) -> None:
        self._queued_s = min(max(delay_s, 0.0), MAX_PLAYOUT_DELAY_S)

    @property
    def state(self) -> str:
        return self._pacer.core.state.value

    @property
    def unsent_s(self) -> float:
        return self._pacer.core.queued * self._ptime_s

    @property
    def longest_gap_s(self) -> float:
        gaps = (each.longest for each in self._open.values())
        return max(self._longest_gap_s, max(gaps, default=0.0))

    def first_audible_at(self, context: int) -> float | None:
        over = self._over.get(context)
        if over is not None:
            return over.first_audible_at
        playout = self._open.get(context)
        return playout.audible_at if playout is not None else None

    # --- inside

    async def _packet(self, payload: bytes, slot: Slot) -> None:
        now = self.clock.now()
        self._put(payload, slot.ticks)
        self.sent_packets += 1
        self.sent_octets += len(payload)
        self.latest_s = max(self.latest_s, now - slot.deadline)
        if self.first_packet_at is None:
            self.first_packet_at = now
        if slot.kind is not Kind.SILENCE:
            self._sound_until = max(now, slot.deadline) + self._ptime_s
        if slot.frame is None:
            return
        self._count_frame()
        for tap in list(self._taps):
            # The slot's time is that of the RTP timestamp, also if it is sent late.
            tap(payload, slot.deadline)

    def _keep(self, context: int, played: Played) -> None:
        self._longest_gap_s = max(self._longest_gap_s, played.longest_gap_s)
        super()._keep(context, played)


@dataclass(frozen=True, slots=True)
class AudioPacket:
    ssrc: int
    sequence: int
    timestamp: int
    payload_type: int
    payload: bytes
    marker: bool = False


class InboundRtp:
    """Inbound RTP: packets in order, decoded, concealed (pure).

    Packets in order are decoded immediately: barge-in must not wait for a buffer.
    """

    def __init__(self, payload: Payload) -> None:
        self._payload = payload
        self._hearing = AudioDecoder({payload.payload_type: payload}, comfort_noise=frozenset())
        self._reception = Reception(payload.clock_hz)
        self._jitter = JitterBuffer()
        self._jitter.clock_hz = payload.clock_hz
        self._lost_before = 0
        self.ssrc: int | None = None
        self.received = 0
        self.octets = 0
        self.unknown = 0
        self.streams = 0
        self.first_at: float | None = None
        self.last_at: float | None = None

    def take(self, packet: AudioPacket, at: float) -> list[HeardFrame]:
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
        if not packet.payload:  # an empty packet is no loss
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
        return self._heard(self._jitter.due(now)) if self._jitter.pending else []

    def next_deadline(self) -> float | None:
        return self._jitter.next_deadline()

    def report(self) -> ReportFigures:
        return self._reception.report()

    @property
    def lost(self) -> int:
        return max(0, self._lost_before + self._reception.lost)

    @property
    def jitter_s(self) -> float:
        return self._reception.jitter_s

    @property
    def wait_s(self) -> float:
        return self._jitter.wait_s

    @property
    def late(self) -> int:
        return self._jitter.late

    @property
    def duplicates(self) -> int:
        return self._jitter.duplicates

    @property
    def concealed(self) -> int:
        return self._jitter.concealed

    @property
    def bursts(self) -> tuple[int, int]:
        return self._jitter.bursts, self._jitter.burst_lost

    @property
    def undecodable(self) -> int:
        return self._hearing.undecodable

    def _restart(self) -> list[InboundFrame]:
        rest = self._jitter.reset()
        self._lost_before += max(0, self._reception.lost)
        self._reception = Reception(self._payload.clock_hz)
        return rest

    def _heard(self, frames: Iterable[InboundFrame]) -> list[HeardFrame]:
        return [heard for frame in frames for heard in self._hearing.take(frame)]
