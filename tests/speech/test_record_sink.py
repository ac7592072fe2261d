"""Where the records of utterances go."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from qwen3tts_speech.latency import LatencyLog, UtteranceRecord, read_log
from qwen3tts_speech.record_sinks import RecordSinks, Spans, open_records, together


class Kept:
    def __init__(self) -> None:
        self.records: list[UtteranceRecord] = []

    def append(self, record: UtteranceRecord) -> None:
        self.records.append(record)


class Broken:
    def append(self, record: UtteranceRecord) -> None:
        raise RuntimeError("no room")


class Told(Kept):
    def __init__(self) -> None:
        super().__init__()
        self.ended: list[str] = []

    def call_ended(
        self,
        call_id: str,
        *,
        began_unix_s: float,
        ended_unix_s: float,
        attributes: Mapping[str, str | int | float | bool] | None = None,
        error: str = "",
    ) -> None:
        self.ended.append(call_id)


def test_each_sink_gets_each_record() -> None:
    first, second, record = Kept(), Kept(), UtteranceRecord()
    RecordSinks(first, second).append(record)
    assert first.records == second.records == [record]


def test_a_sink_that_breaks_harms_no_other_and_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = Kept()
    sinks = RecordSinks(Broken(), kept)
    sinks.append(UtteranceRecord())
    sinks.append(UtteranceRecord())
    assert len(kept.records) == 2
    assert [each.getMessage() for each in caplog.records] == ["a Broken failed on a record"]


def test_the_end_of_a_call_is_told_to_those_that_want_to_know() -> None:
    told = Told()
    RecordSinks(Kept(), told).call_ended("call-1", began_unix_s=1.0, ended_unix_s=2.0)
    assert told.ended == ["call-1"]


def test_one_sink_is_itself_and_none_is_none() -> None:
    kept = Kept()
    assert together(None, kept) is kept
    assert together(None, None) is None


async def test_the_log_that_settings_ask_for_is_opened_and_closed(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    async with AsyncExitStack() as stack:
        sink = await open_records(stack, path, None)
        assert isinstance(sink, LatencyLog)
        sink.append(UtteranceRecord(call_id="call-1"))
    assert [record.call_id for record in read_log(path)] == ["call-1"]


async def test_log_and_spans_and_a_programs_own_are_one(tmp_path: Path) -> None:
    kept = Kept()
    async with AsyncExitStack() as stack:
        sink = await open_records(stack, tmp_path / "log", "http://127.0.0.1:9", kept)
        assert isinstance(sink, RecordSinks)
        assert [type(each) for each in sink.sinks] == [LatencyLog, Spans, Kept]


async def test_nothing_is_opened_unless_it_is_asked_for() -> None:
    async with AsyncExitStack() as stack:
        assert await open_records(stack, None, None) is None
        assert await open_records(stack, None, "off") is None
