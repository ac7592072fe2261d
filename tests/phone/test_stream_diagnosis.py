"""What a record says of a call by a media stream that did not go well."""

from __future__ import annotations

from typing import Any

from qwen3tts_phone.diagnosis.diagnose import diagnose
from qwen3tts_phone.errors import StreamLost
from qwen3tts_phone.facts import ODD_KINDS, EndFacts
from qwen3tts_phone.records.record import CallRecord
from tests.phone.facts import call_facts, leg_stats, media_facts


def codes(**changes: Any) -> list[str]:
    facts = call_facts(
        **{"line": "twilio", "direction": "in", "first_rtp_in_at": 104.1, **changes},
    )
    if "media" not in changes:
        facts.media = media_facts(stats=None, loud_in_s=12.0)
    return [each.code for each in diagnose(facts)]


def test_a_call_that_went_well_has_no_findings() -> None:
    assert codes() == []


def test_a_stream_by_which_no_sound_came_is_told() -> None:
    assert codes(first_rtp_in_at=None) == ["no_stream_media"]
    assert codes(first_rtp_in_at=None, ended_at=104.5) == []


def test_sound_that_stopped_while_the_stream_stayed_open_is_told() -> None:
    assert codes(media=media_facts(stats=None, loud_in_s=1.0, silent_s=20.0)) == ["rtp_stopped"]


def test_a_caller_who_sends_silence_alone_is_told() -> None:
    assert codes(media=media_facts(stats=None, loud_in_s=0.0)) == ["far_end_silent"]


def test_a_speech_server_that_was_too_slow_is_told() -> None:
    media = media_facts(stats=leg_stats(starvations=3), loud_in_s=1.0)
    assert codes(media=media) == ["starved"]


def test_a_machine_that_was_late_is_told_without_the_media_process_that_it_has_not() -> None:
    facts = call_facts(line="audiosocket", first_rtp_in_at=104.1)
    facts.media = media_facts(stats=leg_stats(skipped_slots=500), loud_in_s=1.0)
    (finding,) = diagnose(facts)
    assert finding.code == "machine_late"
    assert "media process" not in finding.remedy


def test_a_stream_that_broke_off_is_told_with_what_to_do() -> None:
    error = StreamLost("The connection closed, and no stop came before.", remedy="Look at its log.")
    facts = call_facts(line="telnyx", end=EndFacts(by="error", error=error), first_rtp_in_at=104.1)
    record = CallRecord.of(facts).values
    assert record["line"] == "telnyx"
    assert record["findings"] == ["stream_lost"]
    assert record["diagnosis"].endswith("Look at its log.")


def test_odd_messages_are_counted_by_kind_and_cannot_fill_the_record() -> None:
    facts = call_facts(line="plivo", first_rtp_in_at=104.1)
    facts.media = media_facts(stats=None, loud_in_s=3.0)
    for number in range(1000):
        facts.note_odd(f"event {number}" * 50)
        facts.note_odd("wrong base64")
    record = CallRecord.of(facts).values
    assert record["odd"]["wrong base64"] == 1000
    assert len(record["odd"]) <= ODD_KINDS + 1
    assert sum(record["odd"].values()) == 2000
    assert max(map(len, record["odd"])) <= 80
    assert record["findings"] == ["odd_messages"]
    assert "wrong base64 (1000)" in record["diagnosis"]


def test_turns_and_interruptions_are_counted_and_words_kept_only_where_asked_for() -> None:
    for keep in (False, True):
        facts = call_facts(keep_transcript=keep)
        facts.note_turn("yes please", 110.0)
        facts.note_turn("", 112.0, barge_in=True)
        record = CallRecord.of(facts).values
        assert (record["turns"], record["barge_ins"]) == (2, 1)
        assert [line.text for line in facts.transcript] == (["yes please"] if keep else [])
