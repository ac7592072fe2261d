from __future__ import annotations

import json
from pathlib import Path

import pytest

from qwen3tts_agent.conversation import ConversationLog
from qwen3tts_agent.turn_record import STAGES, ToolUse, TurnRecord
from qwen3tts_wire.errors import ConnectionLost, EngineFailed


def test_stages_are_milliseconds_after_the_callers_last_word() -> None:
    record = TurnRecord(1, "caller")
    record.mark("caller_end", 10.0)
    record.mark("turn_end", 10.6)
    record.mark("first_audible", 10.9)
    record.mark("first_audible", 99.0)
    record.mark("first_pcm", None)
    assert record.ms("first_audible") == pytest.approx(900)
    assert record.ms("first_pcm") is None
    with pytest.raises(ValueError, match="no stage"):
        record.mark("first", 1.0)


def test_where_the_caller_said_nothing_they_count_from_the_turns_beginning() -> None:
    record = TurnRecord(1, "greeting")
    assert record.ms("first_audible") is None
    record.mark("turn_end", 10.0)
    record.mark("first_audible", 10.2)
    assert record.ms("first_audible") == pytest.approx(200)


def test_the_first_error_is_the_one_that_is_told() -> None:
    record = TurnRecord(1, "caller")
    record.failed(EngineFailed("first"))
    record.failed(ConnectionLost("second"))
    assert json.loads(record.to_json("c"))["error"] == "engine_failed"


def test_a_line_is_ascii_in_the_order_of_the_stages_and_holds_what_was_asked_for() -> None:
    record = TurnRecord(2, "caller", text="Grüße \ud800", heard="Ja.", unsaid="Nein.")
    for number, stage in enumerate(reversed(STAGES)):
        record.mark(stage, 100.0 - number)
    record.tools.append(ToolUse("look", ok=True, ms=12.34))
    line = record.to_json("call", words=True)
    assert line.isascii()
    assert list(json.loads(line)["ms"]) == list(STAGES)
    assert json.loads(line)["words"]["caller"] == "Grüße \ud800"
    assert json.loads(line)["tools"] == [{"name": "look", "ok": True, "ms": 12.3}]
    assert "words" not in json.loads(record.to_json("call"))


def test_a_log_that_cannot_be_written_ends_no_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ConversationLog(tmp_path / "log.jsonl") as log:
        log.append("call", TurnRecord(1, "caller"))
    log.append("call", TurnRecord(2, "caller"))
    log.append("call", TurnRecord(3, "caller"))
    assert [log.written, log.lost] == [1, 2]
    assert caplog.text.count("conversation log") == 1
