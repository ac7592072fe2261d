"""Fuzz target: mr_sip's latency log, put together and written again."""

from __future__ import annotations

import contextlib
import io

from qwen3tts_speech.e2e_lines import BadE2eLine, E2eWriter, read_line
from qwen3tts_speech.e2e_reader import E2eReader
from qwen3tts_speech.latency import MAX_EXAMPLES, MAX_NAME_CHARS, UtteranceRecord
from tests.fuzz.target import Target

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
    )
}
HARD: dict[str, tuple[bytes, ...]] = {
    "e2e_log": (
        LINE % (b"E2E_LATENCY", b"5", b"1", b"a rtp_sent_pc=nan"),
        LINE % (b"E2E_LATENCY", b"5", b"1", b"a rtp_sent_pc=-1e8"),
        LINE % (b"QWEN3TTS_RECORD", b"5", b"1", b"a rate_hz=1e308 heard_samples=-4 starved_ms=inf")
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
    )
}
