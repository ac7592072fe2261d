"""What went over the line of a call in the browser, as a SIP call counts its media (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from qwen3tts_phone.media.types import LegStats
from qwen3tts_phone.softphone.line_figures import FarReport
from qwen3tts_phone.softphone.remote_sound import RemoteSound
from qwen3tts_phone.softphone.web_sink import WebSink


@dataclass(frozen=True, slots=True)
class FarFigures:
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


class FarWorst:
    """The latest of them, and the worst that any of them said."""

    def __init__(self) -> None:
        self.latest = FarFigures()
        self.fraction_lost = 0.0
        self.round_trip_ms: float | None = None
        self.report = FarReport()
        """What the page has said last."""

    def figures(self, figures: FarFigures) -> None:
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


def web_stats(sink: WebSink, sound: RemoteSound, far: FarWorst, unheard: int) -> LegStats:
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
