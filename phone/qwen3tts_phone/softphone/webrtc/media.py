"""Media of a WebRTC call: the sink of outbound frames and the decoding of inbound packets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.clock import Clock
from qwen3tts_pacer.policy import Filling, FillingPolicy
from qwen3tts_pacer.ring import InboundFrame
from qwen3tts_pacer.slot import Kind, Slot
from qwen3tts_phone.audio.frames import HeardFrame, Tap
from qwen3tts_phone.audio.inbound import AudioDecoder
from qwen3tts_phone.media.jitter_buffer import JitterBuffer
from qwen3tts_phone.media.receiver import Reception, ReportFigures
from qwen3tts_speech.sink import PacerSink, Played

QUEUED_S = 0.06
"""What lies between a packet's sending and the ear, until the browser says how much."""
MAX_QUEUED_S = 1.0
"""No more is believed."""

LATE_MS = 100
"""A packet may go out so late. This clock shares its process with all else, and a browser's buffer
grows by what came late, where it would have to make up what was skipped."""

Put = Callable[[bytes, int], None]
"""Takes the payload of a packet, and how many frames have passed since the last one."""


class WebSink(PacerSink):
    """A `CallSink` on a track; one per call."""

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
            silence=payload.silent_frame(ptime_ms),
            ptime_ms=ptime_ms,
            lead_ms=0,
            queued_s=QUEUED_S,
            clock=clock,
            policy=policy or FillingPolicy(ptime_s=ptime_ms / 1000),
            continuous=True,
            late_ms=LATE_MS,
        )
        self.sent_packets = 0
        self.sent_octets = 0
        """Of payload."""
        self.sent_frames = 0
        """Packets of these that were speech."""
        self.first_packet_at: float | None = None
        """When the first packet went out, seconds of the clock."""
        self.first_at: float | None = None
        """When the first one of speech did."""
        self.latest_s = 0.0
        """The latest that a packet went out after its time."""
        self._put = put
        self._sound_until = self.clock.now()
        self._last_at: float | None = None
        self._longest_gap_s = 0.0
        self._heard: dict[int, int] = {}
        self._taps: list[Tap] = []

    # --- FrameSink

    async def drained(self, context: int) -> Played:
        """Return when the context's last frame has been sent, or it was dropped."""
        played = await super().drained(context)
        if played.last_at is not None and not played.dropped:
            self._last_at = self.clock.now()
        self._heard.pop(context, None)
        return played

    def position(self, context: int) -> int:
        """Samples of the context that are at the caller's ear by now; it never goes back."""
        over = self._over.get(context)
        if over is not None:
            return over.position
        position = max(self._heard.get(context, 0), super().position(context))
        self._heard[context] = position
        return position

    def interrupt(self) -> None:
        """Fall silent: not one more frame of speech is sent."""
        now = self.clock.now()
        self.interruptions += 1
        # It is silent on the line when the last frame of speech is over.
        self._silence(now, max(now, self._sound_until))
        self._heard.clear()

    # --- CallSink

    @property
    def last_at(self) -> float | None:
        """When the last utterance that was played to its end went out, seconds."""
        return self._last_at

    def tap(self, tap: Tap) -> None:
        """``tap`` is given each frame of speech that goes out from now on."""
        if tap not in self._taps:
            self._taps.append(tap)

    def untap(self, tap: Tap) -> None:
        """No more of them."""
        if tap in self._taps:
            self._taps.remove(tap)

    def follow(self) -> None:
        """Taps are told at once: there is nothing more."""

    def gone(self) -> None:
        """The line is gone; whoever speaks has been closed before."""

    # --- what the line is like

    @property
    def queued_s(self) -> float:
        """What lies between a packet's sending and the ear, seconds."""
        return self._queued_s

    def lies_behind(self, queued_s: float) -> None:
        """The browser says what lies between our sending and its ear, seconds."""
        self._queued_s = min(max(queued_s, 0.0), MAX_QUEUED_S)

    @property
    def state(self) -> str:
        """What the pacer does."""
        return self._pacer.core.state.value

    @property
    def unsent_s(self) -> float:
        """Speech that waits to be sent, seconds."""
        return self._pacer.core.queued * self._ptime_s

    @property
    def skipped_slots(self) -> int:
        """Places in time that passed unsent, because this machine was late."""
        return self._pacer.core.skipped_slots

    @property
    def starvations(self) -> int:
        """How often an utterance ran dry in its middle."""
        return self._pacer.core.starvations

    @property
    def longest_gap_s(self) -> float:
        """The longest time that one was dry, seconds."""
        going = (each.longest_gap_s for each in self._going.values())
        return max(self._longest_gap_s, max(going, default=0.0))

    def first_audible_at(self, context: int) -> float | None:
        """When the first frame of a context with sound in it went out; None = it did not yet."""
        over = self._over.get(context)
        if over is not None:
            return over.first_audible_at
        going = self._going.get(context)
        return going.first_audible_at if going is not None else None

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
        self.first_at = now if self.first_at is None else self.first_at
        self.sent_frames += 1
        for tap in list(self._taps):
            # Its place on the grid is that of its RTP timestamp, also where it goes out late.
            tap(payload, slot.deadline)

    def _keep(self, context: int, played: Played) -> None:
        self._longest_gap_s = max(self._longest_gap_s, played.longest_gap_s)
        super()._keep(context, played)


@dataclass(frozen=True, slots=True)
class AudioPacket:
    """One RTP packet of sound, as it came."""

    ssrc: int
    sequence: int
    """16 bits."""
    timestamp: int
    """32 bits, ticks of the codec's clock."""
    payload_type: int
    payload: bytes
    marker: bool = False


class InboundRtp:
    """One call's. Times are seconds of the clock."""

    def __init__(self, payload: Payload) -> None:
        self._payload = payload
        self._hearing = AudioDecoder({payload.payload_type: payload}, comfort_noise=frozenset())
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

    def take(self, packet: AudioPacket, at: float) -> list[HeardFrame]:
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
