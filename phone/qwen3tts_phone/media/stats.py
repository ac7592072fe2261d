"""Counters of a leg, read from shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from qwen3tts_pacer.memory import CallMemory, MediaWord


@dataclass(frozen=True)
class LegStats:
    """Counters since the leg was opened, and the latest measurements."""

    sent: int
    speech_sent: int
    skipped_slots: int
    """Slots unsent because the machine was late."""
    starvations: int
    send_errors: int
    received: int
    """Valid packets of the far end."""
    lost: int
    """Packets of the far end that never came, or too late."""
    late: int
    duplicates: int
    concealed: int
    jitter_ms: float
    """Interarrival jitter (RFC 3550 section 6.4.1)."""
    jitter_wait_ms: float
    """Present wait for a missing packet."""
    strangers: int
    malformed: int
    """Datagrams that are no RTP or RTCP."""
    unknown_payload: int
    inbound_overrun: int
    """Received frames dropped because they were not read."""
    dtmf_in: int
    dtmf_out: int
    rtcp_in: int
    rtcp_out: int
    remote_lost: int
    """Our packets that the far end reports lost."""
    remote_fraction_lost: float
    """Share lost in its last report, 0 to 1."""
    remote_jitter_ms: float
    round_trip_ms: float | None
    """None = no report yet (RFC 3550 section 6.4.1)."""
    lateness_max_ms: float
    """Greatest lateness of a slot; 0 = below 0.1 ms."""
    octets_sent: int = 0
    """Bytes of payload."""
    octets_received: int = 0
    fraction_lost: float = 0.0
    """Share of the far end's packets lost, 0 to 1, since the leg was opened."""
    loss_bursts: int = 0
    """Runs of lost or late packets."""
    burst_lost: int = 0
    srtp_failed: int = 0
    srtp_replayed: int = 0
    """Replayed packets (RFC 3711 section 3.3.2)."""
    cn_in: int = 0
    cn_out: int = 0
    first_sent_at: float | None = None
    """First packet sent (CLOCK_MONOTONIC, seconds); None = not yet."""
    first_received_at: float | None = None
    """First valid packet of the far end."""
    last_received_at: float | None = None
    remote_address: tuple[str, int] | None = None
    """Locked source; None = none yet."""
    source_changes: int = 0
    """Times that another source or stream (SSRC) replaced the first."""
    remote_fraction_max: float = 0.0
    """Greatest share lost of any report, 0 to 1."""
    round_trip_max_ms: float | None = None
    keys_ignored: int = 0
    """Keys of the far end faster than a person presses them."""
    events_dropped: int = 0
    """Events of the far end beyond the bound of one call."""


def leg_stats(memory: CallMemory, source: tuple[str, int] | None) -> LegStats:
    """Return the counters as last published; ``source`` is the locked one."""
    words = memory.words

    def ms(word: MediaWord) -> float:
        return words[word] / 1e6

    def seconds(word: MediaWord) -> float | None:
        return words[word] / 1e9 or None

    lost, received = words[MediaWord.LOST], words[MediaWord.RECEIVED]
    return LegStats(
        sent=words[MediaWord.SENT],
        speech_sent=words[MediaWord.SPEECH_SENT],
        skipped_slots=words[MediaWord.SKIPPED],
        starvations=words[MediaWord.STARVED],
        send_errors=words[MediaWord.SEND_ERRORS],
        received=words[MediaWord.RECEIVED],
        lost=words[MediaWord.LOST],
        late=words[MediaWord.LATE],
        duplicates=words[MediaWord.DUPLICATES],
        concealed=words[MediaWord.CONCEALED],
        jitter_ms=ms(MediaWord.JITTER_NS),
        jitter_wait_ms=ms(MediaWord.DEPTH_NS),
        strangers=words[MediaWord.STRANGERS],
        malformed=words[MediaWord.MALFORMED],
        unknown_payload=words[MediaWord.UNKNOWN_PAYLOAD],
        inbound_overrun=words[MediaWord.INBOUND_OVERRUN],
        dtmf_in=words[MediaWord.DTMF_IN],
        dtmf_out=words[MediaWord.DTMF_OUT],
        rtcp_in=words[MediaWord.RTCP_IN],
        rtcp_out=words[MediaWord.RTCP_OUT],
        remote_lost=words[MediaWord.REMOTE_LOST],
        remote_fraction_lost=words[MediaWord.REMOTE_FRACTION] / 256,
        remote_jitter_ms=ms(MediaWord.REMOTE_JITTER_NS),
        round_trip_ms=ms(MediaWord.ROUND_TRIP_NS) or None,
        lateness_max_ms=ms(MediaWord.LATENESS_MAX_NS),
        octets_sent=words[MediaWord.OCTETS_SENT],
        octets_received=words[MediaWord.OCTETS_RECEIVED],
        fraction_lost=lost / (lost + received) if lost else 0.0,
        loss_bursts=words[MediaWord.LOSS_BURSTS],
        burst_lost=words[MediaWord.BURST_LOST],
        srtp_failed=words[MediaWord.SRTP_FAILED],
        srtp_replayed=words[MediaWord.SRTP_REPLAYED],
        cn_in=words[MediaWord.NOISE_IN],
        cn_out=words[MediaWord.NOISE_OUT],
        first_sent_at=seconds(MediaWord.FIRST_SENT_NS),
        first_received_at=seconds(MediaWord.FIRST_RECEIVED_NS),
        last_received_at=seconds(MediaWord.LAST_RECEIVED_NS),
        remote_address=source,
        source_changes=max(0, words[MediaWord.SOURCES] - 1),
        remote_fraction_max=words[MediaWord.REMOTE_FRACTION_MAX] / 256,
        round_trip_max_ms=ms(MediaWord.ROUND_TRIP_MAX_NS) or None,
        keys_ignored=words[MediaWord.KEYS_IGNORED],
        events_dropped=words[MediaWord.EVENTS_DROPPED],
    )
