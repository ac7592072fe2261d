from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_cli.latency.columns import ColumnsBuilder, columns_of
from qwen3tts_cli.latency.findings import LogChanged
from qwen3tts_speech.latency import MARKS, Mark, UtteranceRecord
from tests.cli.latency.synthetic import Made, made_records


def test_a_row_holds_what_its_record_holds() -> None:
    records = list(made_records(Made(utterances=50)))
    columns = columns_of(records)
    assert len(columns) == 50
    for row, record in enumerate(records):
        origin = min(record.marks.values())
        for name in MARKS:
            at = columns.mark_ms[name][row]
            if name in record.marks:
                assert at == pytest.approx((record.marks[name] - origin) * 1000, abs=0.01)
            else:
                assert np.isnan(at)
        sound = record.first_sound_ms
        assert columns.first_sound_ms[row] == pytest.approx(
            np.nan if sound is None else sound, nan_ok=True, abs=0.01
        )
        assert columns.call.of(row) == record.call_id
        assert columns.end_reason.of(row) == record.end_reason
        assert columns.starvations[row] == record.starvations
        assert columns.heard_s[row] == pytest.approx(record.heard_samples / record.rate_hz)
        assert columns.record_at(row) is record


def test_silence_is_never_negative_and_missing_where_nobody_interrupted() -> None:
    interrupted = UtteranceRecord(marks={"interrupted": 5.0, "silent": 4.9})
    columns = columns_of([interrupted, UtteranceRecord()])
    assert columns.silence_ms[0] == 0
    assert np.isnan(columns.silence_ms[1])


def test_names_are_counted_and_found() -> None:
    columns = columns_of(made_records(Made(utterances=40, calls=4)))
    assert columns.call.counts() == {f"call-{number:04}": 10 for number in range(4)}
    assert columns.call.where("call-0002").sum() == 10
    assert columns.call.where("nobody").sum() == 0


@given(st.lists(st.integers(0, 19), max_size=30))
def test_a_selection_has_the_rows_asked_for_in_their_order(rows: list[int]) -> None:
    columns = columns_of(made_records(Made(utterances=20)))
    selected = columns.select(rows)
    assert [record.context for record in selected.records()] == [str(row) for row in rows]
    assert len(selected) == len(rows) == len(selected.mark_ms[Mark.TEXT_IN])


def test_a_mask_selects_too_and_the_findings_stay() -> None:
    columns = columns_of(made_records(Made(utterances=20)))
    columns.findings.damaged = 3
    selected = columns.select(columns.has(Mark.LAST_FRAME))
    assert 0 < len(selected) < 20
    assert all(Mark.LAST_FRAME in record.marks for record in selected.records())
    assert selected.findings.damaged == 3


def test_columns_stay_as_they_are_when_more_is_added() -> None:
    builder = ColumnsBuilder()
    records = list(made_records(Made(utterances=4)))
    builder.add(records[0])
    before = builder.columns()
    for record in records[1:]:
        builder.add(record)
    assert (len(before), len(builder.columns()), len(builder)) == (1, 4, 4)
    assert before.call.of(0) == records[0].call_id


def test_columns_of_nothing_are_columns() -> None:
    columns = columns_of([])
    assert len(columns) == 0
    assert columns.call.counts() == {}
    assert list(columns.records()) == []
    assert len(columns.select([])) == 0


def test_a_source_that_gives_another_utterance_is_told_of() -> None:
    class Other:
        name = "calls.jsonl"

        def records_at(self, offsets: Iterable[int]) -> Iterator[UtteranceRecord]:
            return (UtteranceRecord("another call", started_unix_s=1.0) for _ in offsets)

    builder = ColumnsBuilder()
    builder.add(UtteranceRecord("call", started_unix_s=1.0), Other(), 0)
    with pytest.raises(LogChanged, match=r"calls\.jsonl was changed"):
        builder.columns().record_at(0)
