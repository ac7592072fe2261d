"""Why a call from a browser went wrong: what came by its line, in plain words (pure)."""

from __future__ import annotations

from dataclasses import replace

from qwen3tts_phone.diagnosis.audio_quality import machine_findings, quality_findings
from qwen3tts_phone.diagnosis.stream_audio import QUIET_S, SHORT_S
from qwen3tts_phone.diagnosis.table import Finding
from qwen3tts_phone.facts import CallFacts


def web_findings(facts: CallFacts) -> list[Finding]:
    """What was wrong with the sound of a call over WebRTC."""
    if not facts.was_answered:
        return []
    lasted_s = SHORT_S
    if facts.answered_at is not None and facts.ended_at is not None:
        lasted_s = facts.ended_at - facts.answered_at
    if lasted_s < SHORT_S:
        return []
    found = _sound(facts, lasted_s)
    stats = facts.media.stats
    if stats is not None:
        found += quality_findings(stats)
        found += [
            replace(each, remedy="Give this process fewer calls, or a core of its own.")
            if each.code == "machine_late"
            else each
            for each in machine_findings(stats)
        ]
    return found


def _sound(facts: CallFacts, lasted_s: float) -> list[Finding]:
    media = facts.media
    if not media.receive:
        return []  # a browser without a microphone, which only listens
    if facts.first_rtp_in_at is None:
        return [
            Finding(
                "one_way_in",
                "The browser was connected, and no sound of its microphone came.",
                "Let the page use the microphone: the sign in the browser's address line says "
                "whether it may. In a phone's browser another program may have it.",
                severe=False,  # who has none may listen and type
            )
        ]
    if media.silent_s > 0:
        return [
            Finding(
                "rtp_stopped",
                f"The browser's sound stopped; nothing had come for {media.silent_s:.0f} s.",
                "Check the network of the device that the page is on. A phone whose screen goes "
                "dark may stop a page: keep it in front.",
            )
        ]
    if media.loud_in_s is not None and media.loud_in_s <= 0.0 and lasted_s >= QUIET_S:
        return [
            Finding(
                "far_end_silent",
                "The browser sent sound all the time, with nothing in it but silence.",
                "The microphone is muted, in the page or at the device, or another one than the "
                "chosen one is spoken into.",
                severe=False,
            )
        ]
    return []
