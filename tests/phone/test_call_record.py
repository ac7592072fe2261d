from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.errors import CalleeUnreachable, CallRefused
from qwen3tts_phone.facts import SOURCES_KEPT, CallFacts, EndFacts, MediaFacts
from qwen3tts_phone.records.fields import FIELDS
from qwen3tts_phone.records.record import CallRecord
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_speech.latency import UtteranceRecord
from qwen3tts_speech.utterance import Spoken
from tests.phone.facts import call_facts, leg_stats, media_facts, unanswered


def record(facts: CallFacts, **settings: Any) -> dict[str, Any]:
    line = CallRecord.of(facts, RecordSettings(**settings)).to_json()
    assert "\n" not in line
    values: dict[str, Any] = json.loads(line)
    return values


def test_a_record_has_the_calls_times_in_seconds_after_its_invite() -> None:
    values = record(call_facts(early_media_at=101.5))
    assert values["started"] == "2027-01-15T08:00:00.000+00:00"
    assert values["ended"] == "2027-01-15T08:01:04.000+00:00"
    names = ("ringing_s", "early_media_s", "answered_s", "first_rtp_in_s", "first_rtp_out_s")
    assert [values[name] for name in names] == [1.0, 1.5, 4.0, 4.02, 4.01]
    assert (values["ended_s"], values["talk_s"]) == (64.0, 60.0)


def test_a_record_says_who_codec_quality_and_end() -> None:
    values = record(call_facts(account="trunk", media=media_facts(srtp="AEAD_AES_256_GCM")))
    assert values["remote"] == "sip:+15550100@192.0.2.9"
    assert values["account"] == "trunk"
    assert (values["codec"], values["codec_in"], values["ptime_ms"]) == ("PCMU", "PCMU", 20)
    assert values["srtp"] == "AEAD_AES_256_GCM"
    assert values["quality"]["in"]["mos"] > 4.3
    assert values["quality"]["out"]["mos"] > 4.3
    assert values["quality"]["round_trip_ms"] == 30.0
    assert (values["outcome"], values["end"]["by"]) == ("answered", "remote")
    assert values["end"]["words"] == "the other side hung up"
    assert values["diagnosis"] == ""


def test_a_call_that_failed_says_why_and_what_to_do() -> None:
    error = CallRefused(401, "Unauthorized", realm="pbx", user="6001")
    values = record(unanswered(by="remote", status=401, reason="Unauthorized", error=error))
    assert (values["outcome"], values["outcome_words"]) == (
        "not_allowed",
        "the call is not allowed",
    )
    assert values["end"]["status"] == 401
    assert values["end"]["error"] == "call_refused"
    assert "'pbx'" in values["diagnosis"]
    assert values["findings"] == ["wrong_password"]
    assert values["talk_s"] is None
    assert values["quality"] is None


def test_digits_are_counted_and_only_named_when_asked_for() -> None:
    facts = call_facts(keys_in="1234#", keys_in_more=2, keys_out="9", keys_ignored=3)
    values = record(facts)
    assert (values["dtmf_in"], values["dtmf_out"], values["dtmf_ignored"]) == (7, 1, 3)
    assert "1234" not in json.dumps(values)
    assert "1234" not in repr(facts)
    assert record(facts, keys=True)["keys_in"] == "1234#"


def spoken(heard: str, *, interrupted: bool = False, began: float = 106.0) -> Spoken:
    record = UtteranceRecord(marks={"first_frame_wire": began})
    return Spoken(heard, "", interrupted, 0, record)


def test_a_transcript_has_what_each_side_has_heard_of_the_other() -> None:
    facts = call_facts(keep_transcript=True)
    facts.note_spoken(spoken("Good morning.", interrupted=True), 109.0)
    facts.note_heard("My secret is", 105.0)
    facts.note_spoken(spoken(""), 109.0)
    assert record(facts, transcript=True)["transcript"] == [
        {"who": "caller", "at_s": 5.0, "text": "My secret is", "interrupted": False},
        {"who": "agent", "at_s": 6.0, "text": "Good morning.", "interrupted": True},
    ]
    assert "secret" not in json.dumps(record(facts))
    assert "secret" not in repr(facts)
    assert "secret" not in repr(facts.transcript)


def test_what_was_said_is_not_even_held_where_no_transcript_is_asked_for() -> None:
    facts = call_facts()
    facts.note_spoken(spoken("Good morning."), 109.0)
    facts.note_heard("My secret is", 105.0)
    assert facts.transcript == []


def test_who_called_whom_can_be_left_out() -> None:
    facts = call_facts(transferred_to="sip:+15550111@192.0.2.9")
    assert "1555010" not in json.dumps(record(facts, parties=False))
    assert record(facts, parties=False)["transferred"] is True
    assert record(facts)["transferred_to"] == "sip:+15550111@192.0.2.9"


def test_a_machine_that_answered_is_an_outcome_of_its_own() -> None:
    assert record(call_facts(answered_by="machine"))["outcome"] == "machine"


def test_a_record_can_be_read_back() -> None:
    made = CallRecord.of(call_facts())
    read = CallRecord.from_json(made.to_json())
    assert read == made
    assert (read.id, read.outcome, read.diagnosis) == ("a84b4c76e66710@example", "answered", "")
    assert read.started.timestamp() == 1_800_000_000.0


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "JSON"),
        ("[]", "object"),
        ("{}", "record"),
        ('{"record":true}', "record"),
        ('{"record":99}', "version 99"),
        ('{"record":1,"id":"x"}', "direction"),
        ('{"record":1,"id":7,"direction":"in","started":"x"}', "id"),
        ("[" * 100_000, "JSON"),
    ],
)
def test_what_is_no_record_is_refused_with_the_reason(line: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        CallRecord.from_json(line)


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (EndFacts(by="local"), "we hung up"),
        (EndFacts(by="remote", reason="User busy"), "the other side hung up (User busy)"),
        (EndFacts(by="timeout", status=408), "nothing came in time (408)"),
        (EndFacts(by="error"), "it failed"),
        (EndFacts(by="timeout", error=CalleeUnreachable("No answer.")), "No answer."),
    ],
)
def test_the_end_is_told_in_words(end: EndFacts, words: str) -> None:
    assert end.words == words


def test_figures_that_are_no_numbers_do_not_spoil_the_line() -> None:
    stats = leg_stats(jitter_ms=float("nan"), round_trip_ms=float("inf"))
    values = record(call_facts(media=media_facts(stats=stats)))
    assert values["quality"]["in"]["jitter_ms"] is None


def test_a_call_without_anything_known_has_a_record() -> None:
    assert record(CallFacts(media=MediaFacts()))["outcome"] == "failed"


def test_every_field_is_explained_and_the_other_way_round() -> None:
    assert list(FIELDS) == list(record(call_facts(), keys=True, transcript=True))


@given(st.text(), st.text(max_size=5000), st.text())
def test_whatever_the_far_end_calls_itself_the_line_is_one_line_of_ascii(
    uri: str, reason: str, agent: str
) -> None:
    facts = call_facts(remote_uri=uri, user_agent=agent, end=EndFacts(by="remote", reason=reason))
    line = CallRecord.of(facts).to_json()
    assert line.isascii()
    assert "\n" not in line
    assert CallRecord.from_json(line).values["remote"] == uri[:2000]


def test_sources_that_were_taken_and_refused_are_kept_and_named_only_when_asked_for() -> None:
    media = media_facts(source=None)
    media.note_source(("192.0.2.9", 4000), 104.0)
    media.note_source(("192.0.2.9", 4000), 105.0)  # another stream of the same one
    media.note_refused(("203.0.113.9", 7), 106.0)
    media.note_refused(("203.0.113.9", 8), 107.0)
    media.note_source(("192.0.2.9", 4002), 108.0)
    values = record(call_facts(media=media))["media_sources"]
    assert [(each["at_s"], each["what"], each["host"], each["port"]) for each in values] == [
        (4.0, "began", "192.0.2.9", 4000),
        (6.0, "refused", "203.0.113.9", 7),
        (8.0, "took_over", "192.0.2.9", 4002),
    ]
    assert media.source == ("192.0.2.9", 4002)
    hidden = record(call_facts(media=media), parties=False)["media_sources"]
    assert [each.keys() for each in hidden] == [{"at_s", "what"}] * 3
    for number in range(1000):
        media.note_refused((f"203.0.113.{number}", 1), 110.0)
    assert len(media.sources) == SOURCES_KEPT


def test_keys_that_came_too_fast_are_counted_apart() -> None:
    values = record(call_facts(keys_in="1", keys_ignored=900))
    assert (values["dtmf_in"], values["dtmf_ignored"]) == (1, 900)
    assert values["findings"] == ["keys_ignored"]
