"""Statistics of a WebRTC call: browser reports, RTCP, counters (pure)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from qwen3tts_phone.media.stats import LegStats
from qwen3tts_phone.softphone.webrtc.media import InboundRtp, WebSink
from qwen3tts_phone.softphone.webrtc.report import Report

TransportState = Literal["connecting", "up", "lost", "ended"]
"""``lost``: no packet has come from the browser for a while; the call may recover."""
MAX_DELAY_MS = 60_000.0
"""Longer delays in a browser's report are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportStatistics:
    """Statistics at one moment: milliseconds, counts since the start."""

    time: float
    state: TransportState
    pacer: str
    codec: str
    queued_ms: float
    frames: int
    skipped: int
    starvations: int
    longest_gap_ms: float
    first_sound_ms: float | None
    """From the first text of the last utterance to its first audible packet; None = not yet."""
    silent_ms: float
    received: int
    lost_in: int
    jitter_in_ms: float
    """Interarrival jitter (RFC 3550 section 6.4.1)."""
    rtt_ms: float | None = None
    """Round trip by the browser's report, else by RTCP."""
    report: Report = field(default_factory=Report)


@dataclass(frozen=True, slots=True)
class RemoteStatistics:
    packets: int = 0
    lost: int = 0
    fraction_lost: float = 0.0
    jitter_s: float = 0.0
    round_trip_s: float | None = None
    reported: bool = False


class RemoteQuality:
    def __init__(self) -> None:
        self.latest = RemoteStatistics()
        self.fraction_lost = 0.0
        self.round_trip_ms: float | None = None
        self.report = Report()

    def add_rtcp(self, statistics: RemoteStatistics) -> None:
        self.latest = statistics
        self.fraction_lost = max(self.fraction_lost, statistics.fraction_lost)
        if statistics.round_trip_s is not None:
            self._add_round_trip(statistics.round_trip_s * 1000)

    def add_report(self, report: Report) -> None:
        if report.rtt_ms is not None and report.rtt_ms > MAX_DELAY_MS:
            report = replace(report, rtt_ms=None)
        if report.jitter_buffer_ms is not None and report.jitter_buffer_ms > MAX_DELAY_MS:
            report = replace(report, jitter_buffer_ms=None)
        self.report = report
        if report.rtt_ms is not None:
            self._add_round_trip(report.rtt_ms)

    def delay_s(self) -> float | None:
        report = self.report
        if report.jitter_buffer_ms is None:
            return None
        return (report.jitter_buffer_ms + (report.rtt_ms or 0.0) / 2) / 1000

    def rtt_ms(self) -> float | None:
        if self.report.rtt_ms is not None:
            return self.report.rtt_ms
        seen = self.latest.round_trip_s
        return seen * 1000 if seen is not None else None

    def lost(self) -> int:
        return int(self.report.lost) if self.report.lost is not None else self.latest.lost

    def _add_round_trip(self, value_ms: float) -> None:
        self.round_trip_ms = max(self.round_trip_ms or 0.0, value_ms)


def web_leg_stats(
    sink: WebSink, inbound: InboundRtp, remote: RemoteQuality, unheard: int
) -> LegStats:
    bursts, burst_lost = inbound.bursts
    expected = inbound.received + inbound.lost
    return LegStats(
        sent=sink.sent_packets,
        speech_sent=sink.sent_frames,
        skipped_slots=sink.skipped_slots,
        starvations=sink.starvations,
        send_errors=0,
        received=inbound.received,
        lost=inbound.lost,
        late=inbound.late,
        duplicates=inbound.duplicates,
        concealed=inbound.concealed,
        jitter_ms=inbound.jitter_s * 1000,
        jitter_wait_ms=inbound.wait_s * 1000,
        strangers=0,
        malformed=inbound.undecodable,
        unknown_payload=inbound.unknown,
        inbound_overrun=unheard,
        dtmf_in=0,
        dtmf_out=0,
        rtcp_in=int(remote.latest.reported),
        rtcp_out=0,
        remote_lost=remote.lost(),
        remote_fraction_lost=remote.latest.fraction_lost,
        remote_jitter_ms=remote.latest.jitter_s * 1000,
        round_trip_ms=remote.rtt_ms(),
        lateness_max_ms=sink.latest_s * 1000,
        octets_sent=sink.sent_octets,
        octets_received=inbound.octets,
        fraction_lost=inbound.lost / expected if expected else 0.0,
        loss_bursts=bursts,
        burst_lost=burst_lost,
        first_sent_at=sink.first_packet_at,
        first_received_at=inbound.first_at,
        last_received_at=inbound.last_at,
        source_changes=max(0, inbound.streams - 1),
        remote_fraction_max=remote.fraction_lost,
        round_trip_max_ms=remote.round_trip_ms,
    )
