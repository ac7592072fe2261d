"""Why a call by a media stream went wrong: what came by it, in plain words (pure)."""

from __future__ import annotations

from dataclasses import replace

from qwen3tts_phone.diagnosis.audio_quality import machine_findings, quality_findings
from qwen3tts_phone.diagnosis.table import Finding
from qwen3tts_phone.facts import CallFacts

SHORT_S = 1.0
"""A call shorter than this tells nothing about its media."""
QUIET_S = 5.0
"""Silence alone for so long is a muted microphone."""


def stream_findings(facts: CallFacts) -> list[Finding]:
    """What was wrong with the sound of a call that is no SIP call."""
    found: list[Finding] = []
    if facts.was_answered and _seconds(facts) >= SHORT_S:
        found += _sound(facts)
        if facts.media.stats is not None:
            found += quality_findings(facts.media.stats)
            found += [_here(each) for each in machine_findings(facts.media.stats)]
    if facts.odd:
        most = sorted(facts.odd.items(), key=lambda each: -each[1])
        named = ", ".join(f"{what} ({count})" for what, count in most[:3])
        found.append(
            Finding(
                "odd_messages",
                f"The other side sent what its protocol does not have: {named}.",
                "If the call was not right, check that the stream is set up for the kind of line "
                f"that it came to ({facts.line}), and look for a newer release of this program.",
                severe=False,
            )
        )
    return found


def _sound(facts: CallFacts) -> list[Finding]:
    media = facts.media
    if facts.first_rtp_in_at is None:
        return [
            Finding(
                "no_stream_media",
                "The stream was open, and no sound came by it.",
                "Let it carry the caller's sound both ways (a bidirectional stream, the inbound "
                "track), in the format that the set-up page of this line names.",
            )
        ]
    if media.silent_s > 0 and media.receive:
        return [
            Finding(
                "rtp_stopped",
                "The other side's sound stopped; nothing had come for "
                f"{media.silent_s:.0f} s, and the stream was open.",
                "The call behind the stream probably ended without a word: the PBX or the carrier "
                "should close the stream with it.",
            )
        ]
    if media.loud_in_s is not None and media.loud_in_s <= 0.0 and _seconds(facts) >= QUIET_S:
        return [
            Finding(
                "far_end_silent",
                "The other side sent sound all the time, with nothing in it but silence.",
                "Its microphone is off or muted, or the stream carries another track than the "
                "caller's.",
                severe=False,
            )
        ]
    return []


def _here(finding: Finding) -> Finding:
    """What is the matter with this machine, for a line without a media process."""
    if finding.code != "machine_late":
        return finding
    return replace(finding, remedy="Give this process fewer calls, or a core of its own.")


def _seconds(facts: CallFacts) -> float:
    if facts.answered_at is None or facts.ended_at is None:
        return SHORT_S
    return facts.ended_at - facts.answered_at
