from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_cli.latency import tables
from qwen3tts_cli.latency.choices import WorstOf
from qwen3tts_cli.latency.columns import columns_of
from qwen3tts_cli.latency.selection import typical, values_of, worst
from qwen3tts_cli.latency.stages import CHAIN, SILENCE
from qwen3tts_speech.latency import MARKS, Mark, UtteranceRecord


def utterance(number: int, first_sound_ms: float, **marks: float) -> UtteranceRecord:
    """Marks in ms after the first delta, which is 10 ms after it was asked for."""
    record = UtteranceRecord("call", str(number))
    record.mark(Mark.TEXT_IN, 50.0)
    record.mark(Mark.FIRST_DELTA, 50.01)
    for name, at_ms in marks.items():
        record.mark(name, 50.01 + at_ms / 1000)
    record.mark(Mark.FIRST_FRAME_WIRE, 50.01 + first_sound_ms / 1000)
    record.mark(Mark.FIRST_AUDIBLE_WIRE, 50.01 + first_sound_ms / 1000)
    record.end("text_end")
    return record


@given(st.lists(st.floats(-1e9, 1e9, width=32), min_size=1, max_size=300), st.floats(0, 100))
def test_a_percentile_is_a_value_that_so_many_do_not_exceed(
    values: list[float], percent: float
) -> None:
    found = tables.percentile(np.array(values, np.float32), percent)
    assert found in values
    assert sum(value <= found for value in values) >= len(values) * percent / 100 - 1e-9
    smaller = [value for value in values if value < found]
    assert len(smaller) < max(1, math.ceil(len(values) * percent / 100 + 1e-9))


def test_there_is_no_percentile_of_nothing() -> None:
    assert math.isnan(tables.percentile(np.empty(0, np.float32), 50))
    assert tables.row("x", np.empty(0, np.float32)).count == 0


def test_the_headline_comes_first_and_stages_follow_the_line() -> None:
    columns = columns_of(
        [
            utterance(1, 200, request_sent=1, request_received=2, slot=4, first_pcm=100),
            utterance(2, 300, request_sent=1, request_received=2, slot=4, first_pcm=200),
        ]
    )
    headline = tables.headlines(columns)[0]
    assert headline.name == "first delta → first sound"
    assert headline.count == 2
    assert headline.p50 == pytest.approx(200, abs=0.01)
    assert headline.largest == pytest.approx(300, abs=0.01)
    assert [row.name for row in tables.stages(columns)] == [
        "text_in → first_delta",
        "first_delta → request_sent",
        "request_sent → request_received",
        "request_received → slot",
        "slot → first_pcm",
        "first_pcm → first_frame_wire",
        "first_frame_wire → first_audible_wire",
    ]
    assert sum(row.p50 for row in tables.stages(columns)) == pytest.approx(210, abs=0.01)


@given(st.lists(st.sets(st.sampled_from(CHAIN)), min_size=1, max_size=20))
def test_the_stages_of_an_utterance_add_up_to_its_whole_way(present: list[set[Mark]]) -> None:
    records = [
        UtteranceRecord(marks={str(mark): 3.0 + CHAIN.index(mark) ** 2 for mark in marks})
        for marks in present
    ]
    columns = columns_of(records)
    sums = np.zeros(len(records))
    counts = np.zeros(len(records), int)
    for rows, values in tables.stage_rows(columns).values():
        np.add.at(sums, rows, values)
        np.add.at(counts, rows, 1)
    for record, total, count in zip(records, sums, counts, strict=True):
        times = record.marks.values()
        assert total == pytest.approx((max(times) - min(times)) * 1000 if times else 0)
        assert count == max(0, len(times) - 1)


def test_only_a_time_between_two_machines_has_an_uncertainty() -> None:
    record = utterance(1, 200, request_sent=1, request_received=2, slot=4, first_pcm=100)
    record.clock_error_ms = 0.7
    errors = {row.name: row.clock_error_ms for row in tables.stages(columns_of([record]))}
    assert {name for name, error in errors.items() if error is not None} == {
        "request_sent → request_received",
        "first_pcm → first_frame_wire",
    }
    assert errors["request_sent → request_received"] == pytest.approx(0.7)


def test_gaps_and_interruptions_are_counted() -> None:
    with_gap = utterance(1, 100)
    with_gap.played(position=0, starvations=2, starved_s=0.1, longest_gap_s=0.06)
    interrupted = utterance(2, 100, interrupted=500, silent=512)
    never_played = UtteranceRecord("call", "3", end_reason="failed")
    columns = columns_of([with_gap, interrupted, never_played, utterance(4, 100)])
    found = tables.summary(columns)
    assert (found.utterances, found.calls, found.played, found.gapless) == (4, 1, 3, 2)
    assert (found.starvations, found.longest_gap_ms) == (2, 60.0)
    assert found.gapless_pct == pytest.approx(200 / 3)
    assert found.interrupted == 1
    assert found.ends == {"text_end": 3, "failed": 1}
    silence = tables.headlines(columns)[-1]
    assert silence.name == SILENCE
    assert silence.p50 == pytest.approx(12, abs=0.01)


def test_a_set_without_sound_has_its_figures_too() -> None:
    columns = columns_of([UtteranceRecord("call", "1")])
    assert tables.headlines(columns) == tables.stages(columns) == []
    assert typical(columns) is None
    assert math.isnan(tables.summary(columns_of([])).gapless_pct)
    assert math.isnan(tables.summary(columns_of([])).began_unix_s)


def test_groups_stand_by_size_and_each_has_its_own_first_sound() -> None:
    records = [utterance(number, 100 + number) for number in range(10)]
    for record in records:
        record.engine = "slow" if int(record.context) >= 7 else "quick"
    columns = columns_of(records)
    groups = tables.groups(columns, columns.engine)
    assert [(each.name, each.utterances) for each in groups] == [("quick", 7), ("slow", 3)]
    assert groups[1].lead.largest == pytest.approx(109, abs=0.01)


def test_the_typical_utterance_is_the_one_nearest_to_the_median() -> None:
    columns = columns_of(utterance(number, 100 + number) for number in range(101))
    found = typical(columns)
    assert found is not None
    assert columns.record_at(found).context == "50"


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (WorstOf.FIRST_SOUND, ["2", "1", "0"]),
        (WorstOf.ASKED, ["2", "1", "0"]),
        (WorstOf.GAP, ["1", "0"]),
        (WorstOf.SILENCE, ["0", "2"]),
    ],
)
def test_the_worst_come_first_and_those_without_a_value_not_at_all(
    of: WorstOf, expected: list[str]
) -> None:
    records = [
        utterance(0, 100, interrupted=200, silent=290),
        utterance(1, 150),
        utterance(2, 300, interrupted=400, silent=402),
        UtteranceRecord("call", "3"),
    ]
    records[0].played(position=0, starvations=1, starved_s=0.02, longest_gap_s=0.02)
    records[1].played(position=0, starvations=1, starved_s=0.03, longest_gap_s=0.03)
    columns = columns_of(records)
    assert [columns.record_at(row).context for row in worst(columns, 10, of)] == expected
    assert [columns.record_at(row).context for row in worst(columns, 1, of)] == expected[:1]
    assert len(values_of(of, columns)) == 4


@given(
    st.lists(st.dictionaries(st.sampled_from(sorted(MARKS)), st.floats(-1e12, 1e12)), max_size=8)
)
def test_no_marks_break_a_table(marks: list[dict[str, float]]) -> None:
    columns = columns_of(UtteranceRecord(marks=each) for each in marks)
    for row in (*tables.headlines(columns), *tables.stages(columns)):
        assert not math.isnan(row.p50)
    typical(columns)
    tables.summary(columns)
