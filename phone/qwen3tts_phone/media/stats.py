"""Counters of a leg, read from shared memory."""

from __future__ import annotations

from qwen3tts_pacer.memory import CallMemory, MediaWord
from qwen3tts_phone.media.types import LegStats


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
