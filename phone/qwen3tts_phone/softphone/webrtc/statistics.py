"""Statistics of a WebRTC call: the browser's reports, RTCP and local counters (pure)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from qwen3tts_phone.media.types import LegStats
from qwen3tts_phone.softphone.webrtc.media import InboundRtp, WebSink

TransportState = Literal["connecting", "up", "lost", "ended"]
"""``lost``: nothing has come from the browser for a while, and may come again."""
MOST_MS = 60_000.0
"""A delay that is longer is none: a browser may send any number."""
MOST_COUNT = 1 << 53
"""Larger counts are none: JSON of a browser has no larger whole numbers."""


@dataclass(frozen=True, slots=True)
class FarReport:
    """What the browser says of the sound that it receives, once a second or so.

    Delays in milliseconds; counts since its call began. None = it did not say.
    """

    jitter_buffer_ms: float | None = None
    """How long a sample waits in its jitter buffer."""
    rtt_ms: float | None = None
    """Round trip of the pair of addresses in use."""
    lost: int | None = None
    """Packets of ours that never came."""
    concealed: int | None = None
    """Samples that it made up."""
    received: int | None = None
    """Packets of ours that came."""

    @classmethod
    def checked(
        cls,
        jitter_buffer_ms: float | None = None,
        rtt_ms: float | None = None,
        lost: float | None = None,
        concealed: float | None = None,
        received: float | None = None,
    ) -> FarReport:
        """The same, with what is no delay and no count left out: it comes from outside."""
        return cls(
            _delay(jitter_buffer_ms),
            _delay(rtt_ms),
            _count(lost),
            _count(concealed),
            _count(received),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportStatistics:
    """One call's line at one moment. Durations in milliseconds, counts since the call began."""

    time: float
    """Seconds of the call's clock."""
    state: TransportState
    pacer: str
    """What the pacer does: ``idle``, ``filling``, ``playing``, ``starved``, ``draining``."""
    codec: str
    queued_ms: float
    """Speech that waits here to be sent."""
    frames: int
    """Frames of speech that were sent."""
    skipped: int
    """Places in time that passed unsent because this machine was late."""
    starvations: int
    """How often speech ran dry in its middle."""
    longest_gap_ms: float
    """The longest such gap."""
    first_sound_ms: float | None
    """From the first text of the last thing said to its first audible frame; None = not yet."""
    silent_ms: float
    """Since when nothing has come from the browser; 0 while it does."""
    received: int
    """Packets of the browser that came."""
    lost_in: int
    """Packets of the browser that did not."""
    jitter_in_ms: float
    """How unevenly its packets come (RFC 3550 section 6.4.1)."""
    rtt_ms: float | None = None
    """Round trip, as the browser says it, else as its reports (RTCP) tell it."""
    report: FarReport = field(default_factory=FarReport)
    """What the browser has said last."""

    def to_json(self) -> dict[str, Any]:
        """Plain values, rounded; those of the report under their own names."""
        values = asdict(self)
        report = values.pop("report")
        values["packets_received"] = report.pop("received")
        report.pop("rtt_ms")
        values |= report
        return {
            name: round(value, 3) if isinstance(value, float) else value
            for name, value in values.items()
        }


def _delay(value: float | None) -> float | None:
    good = type(value) in (int, float) and math.isfinite(value or 0.0)
    return float(value) if good and value is not None and 0 <= value <= MOST_MS else None


def _count(value: float | None) -> int | None:
    good = type(value) in (int, float) and math.isfinite(value or 0.0)
    return int(value) if good and value is not None and 0 <= value <= MOST_COUNT else None


@dataclass(frozen=True, slots=True)
class RemoteStatistics:
    """What came by the connection, and what the browser's own reports (RTCP) say of our packets."""

    packets: int = 0
    """Datagrams of any kind that came."""
    lost: int = 0
    fraction_lost: float = 0.0
    """Share lost in its last report, 0 to 1."""
    jitter_s: float = 0.0
    round_trip_s: float | None = None
    reported: bool = False
    """Whether any report has come."""


class RemoteQuality:
    """The latest of them, and the worst that any of them said."""

    def __init__(self) -> None:
        self.latest = RemoteStatistics()
        self.fraction_lost = 0.0
        self.round_trip_ms: float | None = None
        self.report = FarReport()
        """What the page has said last."""

    def figures(self, figures: RemoteStatistics) -> None:
        """Others have come."""
        self.latest = figures
        self.fraction_lost = max(self.fraction_lost, figures.fraction_lost)
        if figures.round_trip_s is not None:
            self._round_trip(figures.round_trip_s * 1000)

    def told(self, report: FarReport) -> None:
        """The page has said something."""
        self.report = report
        if report.rtt_ms is not None:
            self._round_trip(report.rtt_ms)

    def queued_s(self) -> float | None:
        """What lies between our sending and the browser's ear; None = it did not say."""
        report = self.report
        if report.jitter_buffer_ms is None:
            return None
        return (report.jitter_buffer_ms + (report.rtt_ms or 0.0) / 2) / 1000

    def rtt_ms(self) -> float | None:
        """The page's round trip, else the one of the reports."""
        if self.report.rtt_ms is not None:
            return self.report.rtt_ms
        seen = self.latest.round_trip_s
        return seen * 1000 if seen is not None else None

    def lost(self) -> int:
        """Packets of ours that never came."""
        return self.report.lost if self.report.lost is not None else self.latest.lost

    def _round_trip(self, value_ms: float) -> None:
        self.round_trip_ms = max(self.round_trip_ms or 0.0, value_ms)


def web_leg_stats(sink: WebSink, sound: InboundRtp, far: RemoteQuality, unheard: int) -> LegStats:
    """As the counters of a leg."""
    bursts, burst_lost = sound.bursts
    expected = sound.received + sound.lost
    return LegStats(
        sent=sink.sent_packets,
        speech_sent=sink.sent_frames,
        skipped_slots=sink.skipped_slots,
        starvations=sink.starvations,
        send_errors=0,
        received=sound.received,
        lost=sound.lost,
        late=sound.late,
        duplicates=sound.duplicates,
        concealed=sound.concealed,
        jitter_ms=sound.jitter_s * 1000,
        jitter_wait_ms=sound.wait_s * 1000,
        strangers=0,
        malformed=sound.undecodable,
        unknown_payload=sound.unknown,
        inbound_overrun=unheard,
        dtmf_in=0,
        dtmf_out=0,
        rtcp_in=int(far.latest.reported),
        rtcp_out=0,
        remote_lost=far.lost(),
        remote_fraction_lost=far.latest.fraction_lost,
        remote_jitter_ms=far.latest.jitter_s * 1000,
        round_trip_ms=far.rtt_ms(),
        lateness_max_ms=sink.latest_s * 1000,
        octets_sent=sink.sent_octets,
        octets_received=sound.octets,
        fraction_lost=sound.lost / expected if expected else 0.0,
        loss_bursts=bursts,
        burst_lost=burst_lost,
        first_sent_at=sink.first_packet_at,
        first_received_at=sound.first_at,
        last_received_at=sound.last_at,
        source_changes=max(0, sound.streams - 1),
        remote_fraction_max=far.fraction_lost,
        round_trip_max_ms=far.round_trip_ms,
    )
