"""Facts of calls for the tests of records, quality and diagnosis."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from qwen3tts_phone.facts import CallFacts, EndFacts, MediaFacts
from qwen3tts_phone.media.stats import LegStats


def leg_stats(**changes: Any) -> LegStats:
    """The counters of 60 s without any trouble."""
    values: dict[str, Any] = {
        each.name: 0 for each in fields(LegStats) if each.type in ("int", "float")
    }
    values |= {
        "sent": 3000,
        "speech_sent": 1500,
        "received": 3000,
        "jitter_ms": 1.0,
        "jitter_wait_ms": 20.0,
        "round_trip_ms": 30.0,
        "remote_jitter_ms": 1.0,
        "rtcp_in": 12,
        "rtcp_out": 12,
        "first_received_at": 104.02,
        "first_sent_at": 104.01,
    }
    return LegStats(**(values | changes))


def call_facts(**changes: Any) -> CallFacts:
    """A call of a minute that went well; ``media`` and ``end`` are taken as they are given."""
    facts = CallFacts(
        call_id="a84b4c76e66710@example",
        direction="out",
        local_uri="sip:agent@192.0.2.1",
        remote_uri="sip:+15550100@192.0.2.9",
        dialled_uri="sip:+15550100@192.0.2.9",
        transport="udp",
        started_wall=1_800_000_000.0,
        started_at=100.0,
        ringing_at=101.0,
        answered_at=104.0,
        ended_at=164.0,
        end=EndFacts(by="remote"),
        media=media_facts(),
    )
    for name, value in changes.items():
        setattr(facts, name, value)
    return facts


def media_facts(**changes: Any) -> MediaFacts:
    """Sound as it should be."""
    media = MediaFacts(
        codec="PCMU",
        local=("198.51.100.7", 20_000),
        remote=("192.0.2.9", 30_000),
        peer_host="192.0.2.9",
        source=("192.0.2.9", 30_000),
        our_codecs=("PCMU", "PCMA"),
        their_codecs=("PCMU",),
        loud_in_s=30.0,
        stats=leg_stats(),
    )
    for name, value in changes.items():
        setattr(media, name, value)
    return media


def unanswered(**end: Any) -> CallFacts:
    """A call that was never answered."""
    return call_facts(
        ringing_at=None, answered_at=None, media=MediaFacts(), end=EndFacts(**end), ended_at=130.0
    )
