"""mr_sip's latency log: what its calculator reads of ours, and what we read of it."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_speech.e2e_lines import BadE2eLine, E2eWriter, e2e_lines, is_e2e_line, read_line
from qwen3tts_speech.e2e_reader import MAX_OPEN, E2eGroups, E2eReader, read_e2e
from qwen3tts_speech.latency import MARKS, MAX_EXAMPLES, Mark, UtteranceRecord

CALCULATOR = re.compile(
    r"\[(\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}\.\d{3})\] \[E2E\] (\w+) perf_counter=([\d.]+)"
    r" utterance=(\d+) session=(\S+)((?: \w+=\S+)*)"
)
"""What the calculator reads; the utterance directly after the time."""
WALL = "[2026-05-01 22:00:00.123]"


def said(at: float = 50.0, **changes: float) -> UtteranceRecord:
    record = UtteranceRecord(
        call_id="call-1",
        context="1",
        voice="ryan",
        engine="qwen3",
        started_unix_s=1_800_000_000.25,
        clock_error_ms=0.4,
    )
    record.generated_samples = record.heard_samples = 48_000
    record.starvations, record.starved_ms, record.longest_gap_ms = 1, 40.0, 40.0
    record.end("text_end")
    for mark, after in {
        Mark.TEXT_IN: 0.0,
        Mark.FIRST_DELTA: 0.05,
        Mark.REQUEST_SENT: 0.052,
        Mark.FIRST_PCM: 0.198,
        Mark.RECEIVED: 0.2,
        Mark.QUEUED: 0.2004,
        Mark.FIRST_FRAME_WIRE: 0.201,
        Mark.LAST_FRAME: 2.2,
    }.items():
        record.mark(mark, at + changes.get(mark, after))
    return record


def event(name: str, perf: float, utterance: int | None = 1, rest: str = "session=abc") -> bytes:
    number = "" if utterance is None else f" utterance={utterance}"
    return f"{WALL} [E2E] {name} perf_counter={perf:.6f}{number} {rest}\n".encode()


def read(*lines: bytes) -> list[UtteranceRecord]:
    return list(E2eReader(io.BytesIO(b"".join(lines))))


# --- written


def test_the_lines_are_what_the_calculator_reads() -> None:
    lines = e2e_lines("call-1", 7, said(), perf_offset_s=1.5).splitlines()
    found = [match.groups() for line in lines if (match := CALCULATOR.fullmatch(line))]
    assert [(name, perf, number, session) for _, name, perf, number, session, _ in found] == [
        ("LLM_FIRST_PARTIAL_SPEAK", "51.500000", "7", "call-1"),
        ("KYUTAI_FIRST_TEXT_DELTA", "51.552000", "7", "call-1"),
        ("KYUTAI_FIRST_AUDIO_FRAME", "51.700000", "7", "call-1"),
        ("FIRST_CHUNK_QUEUED", "51.700400", "7", "call-1"),
    ]
    assert [wall[-4:] for wall, *_ in found] == [".250", ".302", ".450", ".450"]


@pytest.mark.parametrize("missing", [Mark.TEXT_IN, Mark.REQUEST_SENT, Mark.RECEIVED, Mark.QUEUED])
def test_an_utterance_with_a_stage_missing_has_no_lines(missing: Mark) -> None:
    """The calculator knows no missing stage after a first one: it breaks off with a TypeError."""
    record = said()
    del record.marks[missing]
    assert e2e_lines("call-1", 1, record) == ""


def test_a_session_cannot_forge_a_line() -> None:
    lines = e2e_lines("a b\n[E2E] \u00e9" + "x" * 500, 1, said()).splitlines()
    assert len(lines) == 4
    assert all(CALCULATOR.fullmatch(line) for line in lines)


@pytest.mark.parametrize("started", [1e15, -1e15, 1e11 * 9])
def test_a_time_that_no_calendar_has_gives_no_lines(started: float) -> None:
    record = said()
    record.started_unix_s = started
    assert e2e_lines("a", 1, record) == ""


def test_a_clock_below_zero_gives_no_lines() -> None:
    """The calculator reads digits and a point, no sign."""
    assert e2e_lines("a", 1, said(at=-5.0)) == ""


def test_the_writer_numbers_the_utterances_of_each_call() -> None:
    stream = io.StringIO()
    writer = E2eWriter(stream)
    without = said()
    del without.marks[Mark.RECEIVED]
    other = said()
    other.call_id = ""
    for record in (said(), without, said(60.0), other):
        writer.append(record)
    assert (writer.written, writer.left_out) == (3, 1)
    found = [
        match.groups()
        for line in stream.getvalue().splitlines()
        if (match := CALCULATOR.fullmatch(line))
    ]
    assert [
        (number, session) for _, name, _, number, session, _ in found if name == "FIRST_RTP_SENT"
    ] == [
        ("1", "call-1"),
        ("2", "call-1"),
        ("1", "unknown"),
    ]


def test_a_turn_on_our_own_telephone_has_the_calculators_headline() -> None:
    record = said()
    for mark, before in ((Mark.SPEECH_END, 0.9), (Mark.TRANSCRIBED, 0.6), (Mark.TURN_END, 0.5)):
        record.mark(mark, 50.0 - before)
    lines = e2e_lines("call-1", 1, record, every_mark=True).splitlines()
    found = {match[2]: match[3] for line in lines if (match := CALCULATOR.fullmatch(line))}
    assert (found["VAD_EAGER_END"], found["FIRST_RTP_SENT"]) == ("49.100000", "50.201000")
    assert (found["TRANSCRIBE_DONE"], found["UTTERANCE_CALLBACK"]) == ("49.400000", "49.500000")


# --- round trip


def test_what_was_written_with_every_mark_is_read_back_whole(tmp_path: Path) -> None:
    path = tmp_path / "e2e.log"
    with path.open("w") as stream:
        E2eWriter(stream).append(said())
    (record,) = read_e2e(path)
    assert record.marks == pytest.approx(said().marks, abs=1e-6)
    record.marks = said().marks
    record.started_unix_s = said().started_unix_s
    assert record == said()


@given(
    at=st.floats(0, 1e6),
    after=st.dictionaries(st.sampled_from(sorted(MARKS - {Mark.RELEASED})), st.floats(0, 100)),
    names=st.lists(st.text(max_size=300), min_size=3, max_size=3),
    counts=st.lists(st.integers(0, 10**9), min_size=4, max_size=4),
)
def test_any_record_survives(
    at: float, after: dict[str, float], names: list[str], counts: list[int]
) -> None:
    record = UtteranceRecord(
        call_id=names[0], voice=names[1], engine=names[2], started_unix_s=1_800_000_000.0
    )
    record.starvations, record.heard_samples, record.generated_samples, record.rate_hz = counts
    for mark, ms in after.items():
        record.mark(mark, at + ms)
    lines = e2e_lines(names[0], 3, record, every_mark=True)
    needed = {Mark.TEXT_IN, Mark.REQUEST_SENT, Mark.RECEIVED, Mark.QUEUED}
    assert bool(lines) == needed.issubset(after)
    assert all(CALCULATOR.fullmatch(line) for line in lines.splitlines())
    for back in read(lines.encode()):
        assert back.marks == pytest.approx(record.marks, abs=2e-6)
        assert (back.starvations, back.heard_samples) == (counts[0], counts[1])


# --- read


def test_a_turn_of_mr_sips_own_lines_is_one_utterance() -> None:
    (record,) = read(
        event("VAD_SPEECH_START", 98.0),
        event("VAD_EAGER_END", 100.3, rest="last_speech_audio_pc=100.000000 session=abc"),
        event("TRANSCRIBE_DONE", 100.4, rest="transcribe_ms=90 session=abc"),
        event("EAGER_EOT_CALLBACK", 100.41, rest="text=what time is it session=abc"),
        event("UTTERANCE_CALLBACK", 100.42, rest="session=abc is_eager=True text=what time is it"),
        event("LLM_FIRST_PARTIAL_SPEAK", 100.9),
        event("KYUTAI_FIRST_TEXT_DELTA", 100.91),
        event("KYUTAI_FIRST_AUDIO_FRAME", 101.0),
        event("FIRST_CHUNK_QUEUED", 101.01, rest="session=abc chunk_len=160"),
        event("FIRST_RTP_SENT", 101.03, rest="prebuffer_frames=1 session=abc"),
    )
    assert (record.call_id, record.context) == ("abc", "1")
    assert record.marks == pytest.approx(
        {
            "speech_end": 100.0,
            "transcribed": 100.4,
            "turn_end": 100.42,
            "text_in": 100.9,
            "first_delta": 100.9,
            "request_sent": 100.91,
            "received": 101.0,
            "queued": 101.01,
            "first_frame_wire": 101.03,
        }
    )


def test_of_an_event_that_comes_twice_the_first_counts() -> None:
    (record,) = read(event("FIRST_CHUNK_QUEUED", 5.0), event("FIRST_CHUNK_QUEUED", 6.0))
    assert record.marks == {"queued": 5.0}


def test_a_packet_without_a_session_is_given_to_the_only_utterance_that_it_fits() -> None:
    """PySIP writes FIRST_RTP_SENT with utterance 0 and no session."""
    lost = event("FIRST_RTP_SENT", 101.03, 0, "prebuffer_frames=1")
    (record,) = read(lost, event("KYUTAI_FIRST_AUDIO_FRAME", 101.0))
    assert record.marks["first_frame_wire"] == 101.03


def test_a_packet_that_two_calls_could_have_sent_is_given_to_none() -> None:
    reader = E2eReader(
        io.BytesIO(
            event("KYUTAI_FIRST_AUDIO_FRAME", 101.0)
            + event("KYUTAI_FIRST_AUDIO_FRAME", 101.5, rest="session=other")
            + event("FIRST_RTP_SENT", 101.6, 0, "")
        )
    )
    assert [Mark.FIRST_FRAME_WIRE in record.marks for record in reader] == [False, False]
    assert reader.unplaced == 1


def test_the_latency_that_pysip_has_computed_gives_the_packet() -> None:
    (record,) = read(
        event("KYUTAI_FIRST_AUDIO_FRAME", 9.0),
        event("E2E_LATENCY", 9.1, rest="session=abc rtp_sent_pc=9.05 e2e_ms=800"),
    )
    assert record.marks["first_frame_wire"] == 9.05


@pytest.mark.parametrize(
    ("rest", "session"),
    [
        ("text=my session=evil voice=x session=abc", "abc"),
        ("session=abc is_eager=False text=my session=evil", "abc"),
        ("text=no session here", "unknown"),
    ],
)
def test_a_callers_words_are_neither_kept_nor_taken_for_fields(rest: str, session: str) -> None:
    line = read_line(event("UTTERANCE_CALLBACK", 1.0, rest=rest))
    assert line.session == session
    assert not {"text", "voice"} & set(line.fields)


def test_utterances_come_out_when_the_log_is_beyond_them_and_not_before() -> None:
    groups = E2eGroups()
    assert groups.add(event("FIRST_CHUNK_QUEUED", 10.0), 1) == []
    assert groups.add(event("FIRST_CHUNK_QUEUED", 300.0, 2), 2) == []
    ((record, line),) = groups.add(event("FIRST_CHUNK_QUEUED", 311.0, 3), 3)
    assert (record.context, line) == ("1", 1)
    assert [record.context for record, _ in groups.finish()] == ["2", "3"]


def test_a_clock_that_began_anew_ends_what_was_open() -> None:
    records = read(event("FIRST_CHUNK_QUEUED", 9_000.0), event("FIRST_CHUNK_QUEUED", 4.0))
    assert [record.marks["queued"] for record in records] == [9_000.0, 4.0]


def test_what_is_open_is_bounded() -> None:
    groups = E2eGroups()
    done = 0
    for number in range(MAX_OPEN + 7):
        done += len(groups.add(event("FIRST_CHUNK_QUEUED", 10.0, number), number))
    assert done == 7
    assert len(groups.finish()) == MAX_OPEN


def test_a_turn_in_which_nothing_was_said_is_no_utterance() -> None:
    assert read(event("VAD_SPEECH_START", 1.0), event("VAD_EAGER_END", 2.0)) == []


# --- bad input


@pytest.mark.parametrize(
    "line",
    [
        b"garbage",
        b"[2026-13-01 22:00:00.123] [E2E] X perf_counter=1.0 utterance=1",
        b"[2026-05-01 22:00:00.123] [E2E] X perf_counter=-1.0 utterance=1",
        b"[2026-05-01 22:00:00.123] [E2E] X perf_counter=1.2.3 utterance=1",
        b"[2026-05-01 22:00:00.123] [E2E] X perf_counter=nan utterance=1",
        b"[2026-05-01 22:00:00.123] [E2E] X perf_counter=1.0 utterance=\xd9\xa1",
        b"[2026-05-01 22:00:00.123] [E2E] X perf_counter=1.0 utterance=99999999999999",
        b"[2026-05-01 22:00:00.123] [E2E] X perf_counter=1.0 utterance_num=x",
        b"[2026-05-01 22:00:00.123] [E2E] X perf_counter=99999999999 utterance=1",
        b'{"v":1}',
        WALL.encode() + b" [E2E] X perf_counter=1.0 " + b"a=b " * 4000,
    ],
)
def test_a_damaged_line_is_typed_and_says_why(line: bytes) -> None:
    with pytest.raises(BadE2eLine, match=r"\w"):
        read_line(line)


def test_damaged_lines_are_counted_and_the_rest_is_read() -> None:
    reader = E2eReader(
        io.BytesIO(
            b"half a li\n" * 30 + event("FIRST_CHUNK_QUEUED", 1.0) + b"\n" + b"x" * 30_000 + b"\n"
        )
    )
    assert len(list(reader)) == 1
    assert (reader.lines, reader.damaged, len(reader.examples)) == (33, 31, MAX_EXAMPLES)
    assert reader.examples[0].line == 1


def test_an_empty_log_has_no_utterance() -> None:
    assert read() == []


def test_a_log_of_mr_sip_is_told_from_ours() -> None:
    assert is_e2e_line(event("X", 1.0))
    assert not is_e2e_line(said().to_json())
    assert not is_e2e_line(b"\x00\xff")
