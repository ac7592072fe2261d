from __future__ import annotations

from qwen3tts_phone.diagnosis.diagnose import diagnose
from qwen3tts_phone.diagnosis.findings import CODES
from qwen3tts_phone.facts import CallFacts


def call(**media: object) -> CallFacts:
    facts = CallFacts(line="webrtc", direction="in", answered_at=10.0, ended_at=30.0)
    facts.media.codec = "opus"
    facts.media.loud_in_s = 4.0
    facts.first_rtp_in_at = 10.1
    for name, value in media.items():
        setattr(facts.media, name, value)
    return facts


def codes(facts: CallFacts) -> list[str]:
    return [each.code for each in diagnose(facts)]


def test_a_good_call_has_nothing_to_tell() -> None:
    assert codes(call()) == []


def test_a_microphone_that_never_came_is_told_with_what_to_do() -> None:
    facts = call()
    facts.first_rtp_in_at = None
    (found,) = diagnose(facts)
    assert found.code == "one_way_in"
    assert "microphone" in found.remedy


def test_a_browser_that_only_listens_is_not_reproached_with_its_silence() -> None:
    facts = call(receive=False, loud_in_s=None)
    facts.first_rtp_in_at = None
    assert codes(facts) == []


def test_sound_that_stopped_and_a_muted_microphone_are_told_apart() -> None:
    assert codes(call(silent_s=6.0)) == ["rtp_stopped"]
    assert codes(call(loud_in_s=0.0)) == ["far_end_silent"]
    assert {"rtp_stopped", "far_end_silent", "one_way_in"} <= set(CODES)


def test_a_call_of_a_moment_tells_nothing() -> None:
    facts = call(loud_in_s=0.0)
    facts.ended_at = 10.5
    assert codes(facts) == []
