"""Diagnosis of a call from its facts."""

from __future__ import annotations

from typing import Final

from qwen3tts_phone.diagnosis.audio_failure import audio_findings
from qwen3tts_phone.diagnosis.call_failure import (
    call_findings,
    registration_findings,
)
from qwen3tts_phone.diagnosis.findings import Finding, Group, Rule, findings_of
from qwen3tts_phone.facts import CallFacts

ANY_LINE: Final[tuple[Group[CallFacts], ...]] = (
    (
        Rule(
            lambda e: e.keys_ignored > 0,
            "keys_ignored",
            "{e.keys_ignored} keys came faster than a person presses them, and were ignored.",
            "It is an automatic dialler, or an attack: see who called.",
            severe=False,
        ),
    ),
    (
        Rule(
            lambda e: bool(e.unrecorded),
            "not_recorded",
            "The call was to be recorded, and was not: {e.unrecorded}.",
            "A notice must be heard to its end; the log has more.",
            severe=False,
        ),
    ),
)


def diagnose(facts: CallFacts) -> list[Finding]:
    found = call_findings(facts)
    # A registration that failed matters where no call came about, or none could come in.
    known = {each.code for each in found}
    found += [each for each in registration_findings(facts.registration) if each.code not in known]
    found += audio_findings(facts)
    found += findings_of(ANY_LINE, facts)
    return sorted(found, key=lambda each: not each.severe)


def headline(findings: list[Finding]) -> str:
    """Return the first finding and its remedy in one line, or empty."""
    return str(findings[0]) if findings else ""
