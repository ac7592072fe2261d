"""Latency logs, their report, and times as people write them."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import math
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from qwen3tts_cli.latency import show, tables
from qwen3tts_cli.latency.choices import GroupBy
from qwen3tts_cli.latency.columns import Columns
from qwen3tts_cli.latency.following import LineSplitter
from qwen3tts_cli.latency.options import Views
from qwen3tts_cli.latency.reading import LogFile, ReadFilter, read_columns
from qwen3tts_cli.latency.selection import Selection, moment
from qwen3tts_cli.latency.show import remarks, waterfall
from qwen3tts_speech.e2e_lines import BadE2eLine, E2eWriter, read_line
from qwen3tts_speech.e2e_reader import E2eReader
from qwen3tts_speech.latency import MAX_EXAMPLES, MAX_NAME_CHARS, Mark, UtteranceRecord, read_log
from tests.fuzz.target import Target, chunks

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def run_latency_log(data: bytes) -> None:
    reader = read_log(io.BytesIO(data))
    records = list(reader)
    assert len(records) + reader.damaged <= reader.lines <= data.count(b"\n") + 1
    assert len(reader.examples) == min(reader.damaged, MAX_EXAMPLES)
    for record in records:
        assert "\n" not in record.to_json(include_text=True)
        for line in (*waterfall(record, 80), *remarks(record), show.about(record)):
            assert len(line) <= 3 * 256 + 160
            line.encode("utf-8", "backslashreplace")
    columns = _columns(data)
    findings = columns.findings
    assert findings.lines <= data.count(b"\n") + 1
    assert len(columns) <= findings.lines - findings.damaged
    views = Views(worst=2)
    rows = show.chosen_rows(columns, views, None)
    json.loads(show.as_json(columns, rows, views))
    for told in (*tables.headlines(columns), *tables.stages(columns)):
        assert told.count
        assert not math.isnan(told.p50 + told.largest)
        assert math.isnan(told.p95) == (told.count < 20)
        assert math.isnan(told.p99) == (told.count < 100)
    for row in range(len(columns)):
        again = columns.record_at(row)
        assert again.call_id == columns.call.of(row)
        assert {name for name in columns.mark_ms if columns.has(name)[row]} == set(again.marks)


def _columns(data: bytes) -> Columns:
    piped = LogFile(Path("-"), stream=io.BytesIO(data))
    return read_columns([piped], ReadFilter(Selection()))


def run_terminal(data: bytes) -> None:
    """The first byte selects the grouping of the report."""
    columns = _columns(data[1:])
    views = Views(worst=2, with_text=True, group_by=list(GroupBy)[(data or b"0")[0] % len(GroupBy)])
    with io.StringIO() as file:
        shown = Console(file=file, width=80)
        show.print_report(shown, columns, show.chosen_rows(columns, views, None), views)
        assert "nan" not in file.getvalue() or b"nan" in data
        assert not {"\x1b", "\x07", "\x00"} & set(file.getvalue())


def run_tail(data: bytes) -> None:
    """The first byte says how the rest is cut; a line is the same however it comes."""
    if not data:
        return
    whole, parts = LineSplitter(), LineSplitter()
    expected = whole.feed(data[1:]) + whole.end()
    found = [line for piece in chunks(data[1:], 1 + data[0] % 32) for line in parts.feed(piece)]
    assert found + parts.end() == expected
    assert b"".join(expected) == data[1:]


def run_moment(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert math.isfinite(moment(data.decode("utf-8", "replace"), NOW))


RECORD = b'{"context_id":"c","marks_ms":{%s},"origin_s":%s}'

RECORDS = (
    UtteranceRecord(call_id="k", context="c1", started_unix_s=1.0, marks={Mark.FIRST_DELTA: 5.0}),
    UtteranceRecord(
        call_id="k",
        context="c2",
        started_unix_s=1.0,
        end_reason="interrupted",
        starvations=1,
        clock_error_ms=0.5,
        marks={str(mark): 100 + n / 100 for n, mark in enumerate(Mark)},
    ),
)

LOG = tuple(record.to_json().encode() for record in RECORDS)

LINE = b"[2026-05-01 22:00:00.123] [E2E] %s perf_counter=%s utterance=%s session=%s\n"

TURN = b"".join(
    LINE % (event, at, b"1", b"abc")
    for event, at in (
        (b"VAD_EAGER_END", b"100.3"),
        (b"UTTERANCE_CALLBACK", b"100.42"),
        (b"LLM_FIRST_PARTIAL_SPEAK", b"100.9"),
        (b"KYUTAI_FIRST_TEXT_DELTA", b"100.91"),
        (b"KYUTAI_FIRST_AUDIO_FRAME", b"101.0"),
        (b"FIRST_CHUNK_QUEUED", b"101.01"),
        (b"FIRST_RTP_SENT", b"101.03"),
    )
)


def run_e2e_log(data: bytes) -> None:
    reader = E2eReader(io.BytesIO(data))
    records = list(reader)
    assert len(records) + reader.damaged <= reader.lines <= data.count(b"\n") + 1
    assert len(reader.examples) == min(reader.damaged, MAX_EXAMPLES)
    again = io.StringIO()
    writer = E2eWriter(again)
    for record in records:
        assert record.marks
        assert len(record.call_id) <= MAX_NAME_CHARS
        assert UtteranceRecord.from_json(record.to_json()).marks.keys() == record.marks.keys()
        writer.append(record)
    assert writer.written + writer.left_out == len(records)
    for written in again.getvalue().splitlines():
        read_line(written)
    for line in data.split(b"\n"):
        with contextlib.suppress(BadE2eLine):
            assert "text" not in read_line(line).fields


TARGETS = {
    "latency_log": Target(
        run_latency_log,
        "A log of any bytes gives records and a count of the damaged lines, and what is read can"
        " be added up, drawn, written, and read again.",
        (b"\n".join(LOG), LOG[1] + b"\n", b'{"context_id":"c","marks_ms":{}}\n{"v":1}\n[]\n'),
        (
            *(f'"{mark}":'.encode() for mark in Mark),
            *(b'"origin_s":', b'"marks_ms":{', b"1e308", b"1e-310", b"-1e15", b"null", b"NaN"),
            *(b'"v":2', b'"started_unix_s":', b'"clock_error_ms":', b"\x1f\x8b\x08", b"[E2E] "),
        ),
        hard=(
            b"\n\n\x00\n{}\n[" + b"[" * 3000,
            RECORD % (b'"text_in":1e400', b"0"),
            RECORD % (b'"text_in":0,"first_delta":1e-310', b"0"),
            RECORD % (b'"text_in":-1e15,"silent":1e15', b"-1e15"),
            RECORD % (b'"text_in":1e15,"first_audible_wire":-1e15,"first_delta":0', b"1e15"),
            RECORD % (b'"text_in":true', b"null"),
            RECORD % (b'"text_in":' + b"1" * 3000, b"0"),
            json.dumps(
                {"context_id": "\ud83d\n\x1b[31m", "marks_ms": {}, "end_reason": "\0"}
            ).encode(),
            b'{"context_id":"c","marks_ms":{}}\r\n' * 30,
            b'{"context_id":"c","marks_ms":{},"started_unix_s":1e15,"starvations":1000000000000000}',
            b'{"context_id":"c","marks_ms":{},"started_unix_s":-1e15,"rate_hz":0,"heard_samples":9}',
            b'{"context_id":"c","marks_ms":{},"v":1e999}\n{"context_id":"c","marks_ms":{},"v":99}',
            b"\xff\xfe{\x00}\x00",
            gzip.compress(LOG[0] + b"\n", mtime=0)[:-9],
            b"\x1f\x8b",
            b"\x1f\x8b\x08\x00\xff\xff\xff\xff",
        ),
    ),
    "latency_report": Target(
        run_terminal,
        "Any log is reported in the terminal, without control characters of its text.",
        (*(bytes([number]) + b"\n".join(LOG) for number in range(len(GroupBy))),),
        (*(f'"{mark}":'.encode() for mark in Mark), b'"engine":"', b"[/b]", b"[red]", b"\\u001b"),
        hard=(
            b"",
            b"\x01" + RECORD % (b'"first_delta":0,"first_audible_wire":NaN', b"0"),
            b'\x01{"context_id":"[/b]","engine":"[/x][red]","marks_ms":{}}',
            b'\x00{"context_id":"\\u001b[2J","call_id":"\\u001b]0;x\\u0007","marks_ms":{"slot":0}}',
            b'\x02{"context_id":"c","voice":"a\\nb","marks_ms":{"first_delta":0,"first_audible_wire":1},'
            b'"text":"[/i] \\u0000 \\ud800"}',
        ),
    ),
    "log_tail": Target(
        run_tail,
        "A growing file gives the same lines however its bytes come, and all of them.",
        (b"\x00one\ntwo\n\nthree", b"\x05" + LOG[0] + b"\r\n" + LOG[1]),
        (b"\n", b"\r\n", b"\x00"),
        hard=(b"", b"\x01", b"\x00\n\n\n", b"\x1f" + b"x" * 3000),
    ),
    "log_time": Target(
        run_moment,
        "Any text is a finite Unix time, or ValueError.",
        (b"2026-03-01 14:30", b"14:30", b"90m", b"2026-03-01T14:30:00.5+02:00", b"2026-W09-7"),
        (b"Z", b"T", b":", b"-", b"9999-12-31", b"0001-01-01", b"w", b"h", b" "),
        max_bytes=64,
        hard=(
            b"",
            b"99999999w",
            b"999999w",
            b"0001-01-01",
            b"9999-12-31T23:59:59.999999-23:59",
            b"24:00",
            b"25:61",
            b"\xd9\xa1\xd9\xa2:\xd9\xa3\xd9\xa0",
            b"1e9m",
            b"-5m",
        ),
    ),
    "e2e_log": Target(
        run_e2e_log,
        "A log of any bytes gives records and a count of the damaged lines, and what is read can"
        " be written again as lines that are read.",
        (
            TURN,
            TURN.replace(b" session=abc", b""),
            LINE % (b"QWEN3TTS_RECORD", b"5", b"1", b"a heard_samples=5 voice=x rate_hz=24000"),
            LINE % (b"EAGER_EOT_CALLBACK", b"5", b"1", b"a text=b session=c"),
        ),
        (
            *(b"[E2E] ", b" perf_counter=", b" utterance=", b" utterance_num=", b" session="),
            *(b"QWEN3TTS_", b"QWEN3TTS_RECORD", b"E2E_LATENCY", b" rtp_sent_pc=", b" text="),
            *(b"FIRST_RTP_SENT", b"LLM_FIRST_PARTIAL_SPEAK", b"1e308", b"-1", b"nan"),
        ),
        hard=(
            LINE % (b"E2E_LATENCY", b"5", b"1", b"a rtp_sent_pc=nan"),
            LINE % (b"E2E_LATENCY", b"5", b"1", b"a rtp_sent_pc=-1e8"),
            LINE
            % (b"QWEN3TTS_RECORD", b"5", b"1", b"a rate_hz=1e308 heard_samples=-4 starved_ms=inf")
            + LINE % (b"QWEN3TTS_RECEIVED", b"5", b"1", b"a"),
            LINE % (b"QWEN3TTS_RECORD_X", b"5", b"1", b"a"),
            TURN.replace(b"100.", b"999999999."),
            (LINE % (b"FIRST_CHUNK_QUEUED", b"9999", b"1", b"a"))
            + (LINE % (b"FIRST_CHUNK_QUEUED", b"1", b"1", b"a")),
            TURN.replace(b"2026-05-01", b"0001-01-01"),
            TURN.replace(b"2026-05-01", b"9999-12-31"),
            b"[" * 9000 + b"\n" + TURN[:-20],
            TURN.replace(b"\n", b"\r\n"),
            TURN.replace(b" ", b"\xc2\xa0"),
        ),
    ),
}
