from __future__ import annotations

import io
import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_speech.latency import (
    MARKS,
    MAX_LINE_BYTES,
    LatencyLog,
    LogReader,
    Mark,
    UtteranceRecord,
    read_log,
)


def finished(context: str = "1", *, first_sound_s: float = 0.2) -> UtteranceRecord:
    record = UtteranceRecord("call-a", context, voice="en", engine="embedded")
    record.mark(Mark.TEXT_IN, 100.0)
    record.mark(Mark.FIRST_DELTA, 100.1)
    record.mark(Mark.FIRST_AUDIBLE_WIRE, 100.1 + first_sound_s)
    record.end("text_end")
    return record


def test_the_first_mark_of_a_name_wins() -> None:
    record = UtteranceRecord()
    assert record.mark("received", 1.0)
    assert not record.mark(Mark.RECEIVED, 2.0)
    assert record.marks == {"received": 1.0}


@pytest.mark.parametrize("at", [float("nan"), float("inf")])
def test_a_mark_needs_a_time(at: float) -> None:
    with pytest.raises(ValueError, match="not a time"):
        UtteranceRecord().mark("received", at)


def test_a_mark_needs_a_known_name() -> None:
    with pytest.raises(ValueError, match="'reveived'"):
        UtteranceRecord().mark("reveived", 1.0)


def test_server_marks_come_over_by_the_clock_offset_and_strange_ones_are_left_out() -> None:
    record = UtteranceRecord(clock_offset_s=900.0)
    record.server_marks({"slot": 1_000_500.0, "lunch": 1.0, "prefill": float("nan")})
    assert record.marks == {"slot": pytest.approx(100.5)}


def test_what_the_server_calls_received_is_the_request_not_the_sound() -> None:
    record = UtteranceRecord()
    record.server_marks({"received": 1000.0, "first_audible": 2000.0, "first_delta": 3000.0})
    assert record.marks == {"request_received": 1.0, "first_audible_pcm": 2.0}


def test_the_first_audible_frame_follows_from_the_first_where_the_sink_does_not_know_it() -> None:
    record = UtteranceRecord()
    record.first_audible_sample(2400)
    record.first_audible_sample(9600)
    record.played(position=48_000, first_at=10.0)
    assert record.marks["first_audible_wire"] == pytest.approx(10.1)


@pytest.mark.parametrize(("position", "starvations"), [(2400, 0), (48_000, 1)])
def test_it_stays_open_where_it_was_never_reached_or_a_gap_lies_between(
    position: int, starvations: int
) -> None:
    record = UtteranceRecord()
    record.first_audible_sample(2400)
    record.played(position=position, first_at=10.0, starvations=starvations)
    assert "first_audible_wire" not in record.marks


def test_the_headline_is_from_the_first_delta_to_the_first_audible_frame() -> None:
    assert finished(first_sound_s=0.25).first_sound_ms == pytest.approx(250.0)
    assert UtteranceRecord().first_sound_ms is None


def test_silence_after_an_interruption_is_never_negative() -> None:
    record = UtteranceRecord()
    record.mark("interrupted", 5.0)
    record.mark("silent", 4.9)
    assert record.silence_ms == 0.0


def test_what_the_sink_knows_is_taken_over() -> None:
    record = UtteranceRecord()
    record.played(
        position=480,
        first_at=1.0,
        first_audible_at=1.02,
        last_at=2.0,
        starvations=2,
        starved_s=0.1,
        longest_gap_s=0.06,
    )
    assert record.marks == {"first_frame_wire": 1.0, "first_audible_wire": 1.02, "last_frame": 2.0}
    assert (record.heard_samples, record.starvations) == (480, 2)
    assert (record.starved_ms, record.longest_gap_ms) == (100.0, 60.0)


def test_the_first_reason_of_the_end_wins() -> None:
    record = finished()
    record.end("failed")
    assert record.end_reason == "text_end"


names = st.text(max_size=40)
records = st.builds(
    UtteranceRecord,
    call_id=names,
    context=names,
    voice=names,
    engine=names,
    started_unix_s=st.floats(0, 4e9),
    marks=st.dictionaries(st.sampled_from(sorted(MARKS)), st.floats(0, 1e7)),
    starvations=st.integers(0, 10_000),
    starved_ms=st.floats(0, 1e6),
    longest_gap_ms=st.floats(0, 1e6),
    heard_samples=st.integers(0, 10**9),
    generated_samples=st.integers(0, 10**9),
    audible_sample=st.none() | st.integers(0, 10**9),
    end_reason=names,
    text=st.none() | st.text(),
)


@given(records)
def test_a_line_read_back_is_the_record(record: UtteranceRecord) -> None:
    line = record.to_json(include_text=True)
    assert "\n" not in line
    back = UtteranceRecord.from_json(line)
    assert back.marks.keys() == record.marks.keys()
    for name, at in record.marks.items():
        assert back.marks[name] == pytest.approx(at, abs=2e-6)
    for name in ("call_id", "context", "voice", "engine", "starvations", "end_reason", "text"):
        assert getattr(back, name) == getattr(record, name)
    assert back.audible_sample == record.audible_sample


def test_the_text_is_written_only_where_it_is_asked_for() -> None:
    record = finished()
    record.text = "my number is 12"
    assert "number" not in record.to_json()
    assert json.loads(record.to_json(include_text=True))["text"] == "my number is 12"


def test_a_log_is_readable_by_its_owner_only_and_grows_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    for context in "12":
        with LatencyLog(path) as log:
            log.append(finished(context))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [record.context for record in read_log(path)] == ["1", "2"]


def test_a_line_that_a_killed_writer_left_open_is_not_glued_to_the_next(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_bytes(b'{"v":1,"context_')
    with LatencyLog(path) as log:
        log.append(finished("9"))
    reader = read_log(path)
    assert [record.context for record in reader] == ["9"]
    assert [(each.line, each.why[:8]) for each in reader.examples] == [(1, "not JSON")]


def test_a_full_disk_is_warned_of_once_and_does_not_raise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    with LatencyLog("/dev/full") as log:
        log.append(finished())
        log.append(finished())
        assert (log.written, log.lost) == (0, 2)
    assert len(caplog.records) == 1
    assert "No space left" in caplog.text


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe\n", "not UTF-8"),
        (b"[1]", "not a JSON object"),
        (b"{}", "context_id or marks_ms is missing"),
        (b'{"context_id":"1","marks_ms":[]}', "marks_ms is not an object"),
        (b'{"context_id":1,"marks_ms":{}}', "context_id is not a name"),
        (b'{"context_id":"1","marks_ms":{"slot":"soon"}}', "slot is not a number"),
        (b'{"context_id":"1","marks_ms":{"slot":NaN}}', "slot is not a number"),
        (b'{"context_id":"1","marks_ms":{"slot":1e999}}', "slot is not a number"),
        (b'{"context_id":"1","marks_ms":{"slot":' + b"9" * 400 + b"}}", "slot is not a number"),
        (b'{"context_id":"1","marks_ms":{"slot":true}}', "slot is not a number"),
        (b'{"context_id":"1","marks_ms":{},"starvations":-1}', "starvations is not a count"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_damaged_line_is_named_and_the_rest_is_read(line: bytes, why: str) -> None:
    good = finished().to_json().encode()
    reader = LogReader(io.BytesIO(good + b"\n" + line + b"\n\n" + good))
    assert len(list(reader)) == 2
    assert (reader.damaged, reader.examples[0].line) == (1, 2)
    assert why in reader.examples[0].why


def test_a_line_without_end_is_not_held_in_memory() -> None:
    good = finished().to_json().encode()
    stream = io.BytesIO(b"x" * (3 * MAX_LINE_BYTES) + b"\n" + good + b"\n")
    reader = LogReader(stream)
    assert len(list(reader)) == 1
    assert (reader.lines, reader.damaged) == (2, 1)
    assert "longer than" in reader.examples[0].why


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


marks = st.dictionaries(st.sampled_from(sorted(MARKS)), values)
fields = ("origin_s", "starvations", "rate_hz", "voice", "text", "audible_sample")


@given(
    st.fixed_dictionaries(
        {"context_id": st.text() | values, "marks_ms": marks},
        optional=dict.fromkeys(fields, values),
    )
)
def test_no_json_object_breaks_the_reader(raw: dict[str, object]) -> None:
    reader = LogReader(io.BytesIO(json.dumps(raw).encode()))
    for record in reader:
        record.to_json(include_text=True)


def test_a_missing_log_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_log(tmp_path / "none.jsonl")


@pytest.mark.parametrize(
    "changed", [{"v": 0}, {"starved_ms": -1.0}, {"longest_gap_ms": -1}, {"clock_error_ms": -0.5}]
)
def test_a_line_whose_numbers_cannot_be_is_damaged(changed: dict[str, object]) -> None:
    line = json.loads(UtteranceRecord("call", "1").to_json())
    with pytest.raises(ValueError, match=next(iter(changed))):
        UtteranceRecord.from_json(json.dumps({**line, **changed}))


def test_the_rule_that_ended_the_callers_turn_is_in_the_line() -> None:
    record = UtteranceRecord("call", "1", rule="digits_complete")
    line = json.loads(record.to_json())
    assert line["rule"] == "digits_complete"
    assert UtteranceRecord.from_json(json.dumps(line)).rule == "digits_complete"
    del line["rule"]  # a log of a version before
    assert UtteranceRecord.from_json(json.dumps(line)).rule == ""


def test_why_the_generation_ended_is_in_the_line() -> None:
    record = UtteranceRecord("call", "1", generation_end="regenerated")
    line = json.loads(record.to_json())
    assert line["generation_end"] == "regenerated"
    assert UtteranceRecord.from_json(json.dumps(line)).generation_end == "regenerated"
    del line["generation_end"]  # a log of a version before
    assert UtteranceRecord.from_json(json.dumps(line)).generation_end == ""
