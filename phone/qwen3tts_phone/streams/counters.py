"""What went over a stream, counted as the media of a call over SIP is."""

from __future__ import annotations

from qwen3tts_phone.media.types import LegStats
from qwen3tts_phone.streams.sink import StreamSink


class StreamCounters:
    """One call's."""

    def __init__(self) -> None:
        self.sounds = 0
        self.losses = 0
        self._octets = 0
        self._first_at: float | None = None
        self._last_at: float | None = None

    def sound(self, octets: int, now: float) -> None:
        """One with sound in it."""
        self.sounds += 1
        self._octets += octets
        self._first_at = now if self._first_at is None else self._first_at
        self._last_at = now

    def lost(self) -> None:
        """One that should have come and did not."""
        self.losses += 1

    def stats(self, sink: StreamSink | None, undecodable: int, unheard: int) -> LegStats:
        """As the counters of a leg: messages in the place of packets."""
        sent = sink.sent_frames if sink is not None else 0
        return LegStats(
            sent=sent,
            speech_sent=sent,
            skipped_slots=sink.skipped_slots if sink is not None else 0,
            starvations=sink.starvations if sink is not None else 0,
            send_errors=0,
            received=self.sounds,
            lost=self.losses,
            late=0,
            duplicates=0,
            concealed=self.losses,
            jitter_ms=0.0,
            jitter_wait_ms=0.0,
            strangers=0,
            malformed=undecodable,
            unknown_payload=0,
            inbound_overrun=unheard,
            dtmf_in=0,
            dtmf_out=0,
            rtcp_in=0,
            rtcp_out=0,
            remote_lost=0,
            remote_fraction_lost=0.0,
            remote_jitter_ms=0.0,
            round_trip_ms=None,
            lateness_max_ms=0.0,
            octets_received=self._octets,
            fraction_lost=self.losses / (self.losses + self.sounds) if self.losses else 0.0,
            first_sent_at=sink.first_at if sink is not None else None,
            first_received_at=self._first_at,
            last_received_at=self._last_at,
        )
