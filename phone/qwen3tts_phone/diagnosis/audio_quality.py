"""Why people are heard only badly: loss, jitter, delay, a busy machine, in plain words (pure)."""

from __future__ import annotations

from qwen3tts_phone.diagnosis.table import Finding
from qwen3tts_phone.media.types import LegStats

LOSS = 0.03
"""Beyond this share of lost packets people notice (G.107: a point of MOS at about 10 %)."""
JITTER_MS = 40.0
"""Beyond this our buffer waits noticeably."""
ROUND_TRIP_MS = 400.0
"""ITU-T G.114: more than 200 ms one way is felt in a conversation."""


def quality_findings(stats: LegStats) -> list[Finding]:
    """What the network did to the sound of both sides."""
    found: list[Finding] = []
    due = stats.received - stats.duplicates - stats.late + stats.lost
    if due >= 50 and stats.lost / due > LOSS:
        found.append(
            Finding(
                "loss_in",
                f"{stats.lost / due:.0%} of the other side's packets were lost or late.",
                "Look for a full line or a bad radio link on the way; give UDP of this machine "
                "priority.",
                severe=stats.lost / due > 0.15,
            )
        )
    if stats.received >= 50 and stats.jitter_ms > JITTER_MS:
        found.append(
            Finding(
                "jitter_in",
                f"The other side's packets come unevenly ({stats.jitter_ms:.0f} ms of jitter).",
                "Look for a full line on the way, or for a busy machine there.",
                severe=False,
            )
        )
    if LOSS < stats.remote_fraction_lost <= 0.5:
        found.append(
            Finding(
                "loss_out",
                f"The other side reports {stats.remote_fraction_lost:.0%} of our packets as lost.",
                "Look for a full line or a bad radio link on the way to it.",
                severe=stats.remote_fraction_lost > 0.15,
            )
        )
    if stats.round_trip_ms is not None and stats.round_trip_ms > ROUND_TRIP_MS:
        found.append(
            Finding(
                "delay",
                f"What is said is heard late: {stats.round_trip_ms:.0f} ms there and back.",
                "Take a server that is nearer, or look for a full line on the way.",
                severe=False,
            )
        )
    return found


def machine_findings(stats: LegStats) -> list[Finding]:
    """What this machine and its speech server did to it."""
    found: list[Finding] = []
    if stats.skipped_slots > max(5, stats.sent // 200):
        found.append(
            Finding(
                "machine_late",
                f"This machine was too busy to send {stats.skipped_slots} packets in time.",
                "Give the media process real-time priority, or fewer calls to this machine.",
            )
        )
    if stats.starvations > 0:
        found.append(
            Finding(
                "starved",
                f"The speech server was too slow {stats.starvations} times: what we said had gaps.",
                "Check the load of the speech server, and the network to it.",
                severe=False,
            )
        )
    if stats.inbound_overrun > 0:
        found.append(
            Finding(
                "not_listened",
                f"{stats.inbound_overrun} frames of the other side were dropped here unheard.",
                "The program that listens is too slow.",
                severe=False,
            )
        )
    return found
