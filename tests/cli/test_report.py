from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_cli.report import EXACT_VALUES, SAMPLE_SIZE, Distribution, Report, add_all
from qwen3tts_cli.waterfall import waterfall
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


def distribution(values: list[float]) -> Distribution:
    made = Distribution()
    for value in values:
        made.add(value)
    return made


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=300), st.floats(0, 100))
def test_percentiles_of_few_values_are_exact(values: list[float], percent: float) -> None:
    expected = np.percentile(values, percent, method="inverted_cdf")
    assert distribution(values).percentile(percent) == expected


@pytest.mark.parametrize("percent", [1, 50, 95, 99, 100])
def test_percentiles_of_many_values_are_right_to_half_a_percent(percent: float) -> None:
    rng = random.Random(1)
    values = [rng.lognormvariate(4, 2) * rng.choice([1, 1, 1, -1]) for _ in range(50_000)]
    made = distribution(values)
    assert made.count > EXACT_VALUES
    expected = float(np.percentile(values, percent, method="inverted_cdf"))
    assert made.percentile(percent) == pytest.approx(expected, rel=0.006)


def test_a_distribution_does_not_grow_with_its_values() -> None:
    made = distribution([float(value % 4000) for value in range(5 * EXACT_VALUES)])
    assert len(made._values) <= EXACT_VALUES
    assert len(made._buckets) < 2500


def test_there_is_no_percentile_of_nothing() -> None:
    assert math.isnan(Distribution().percentile(50))


def test_the_headline_comes_first_and_stages_follow_the_line() -> None:
    report = add_all(
        [
            utterance(1, 200, request_sent=1, request_received=2, slot=4, first_pcm=100),
            utterance(2, 300, request_sent=1, request_received=2, slot=4, first_pcm=200),
        ]
    )
    headline = report.headlines()[0]
    assert headline.name == "first delta → first sound"
    assert headline.count == 2
    assert headline.p50 == pytest.approx(200)
    assert headline.largest == pytest.approx(300)
    assert [row.name for row in report.stages()] == [
        "text_in → first_delta",
        "first_delta → request_sent",
        "request_sent → request_received",
        "request_received → slot",
        "slot → first_pcm",
        "first_pcm → first_frame_wire",
        "first_frame_wire → first_audible_wire",
    ]
    assert sum(row.p50 for row in report.stages()) == pytest.approx(210)


def test_gaps_and_interruptions_are_counted() -> None:
    with_gap = utterance(1, 100)
    with_gap.played(position=0, starvations=2, starved_s=0.1, longest_gap_s=0.06)
    interrupted = utterance(2, 100, interrupted=500, silent=512)
    never_played = UtteranceRecord("call", "3", end_reason="failed")
    report = add_all([with_gap, interrupted, never_played, utterance(4, 100)])
    assert (report.utterances, report.played, report.gapless) == (4, 3, 2)
    assert (report.starvations, report.longest_gap_ms) == (2, 60.0)
    assert report.gapless_pct == pytest.approx(200 / 3)
    silence = report.headlines()[-1]
    assert silence.name == "interrupted → silence"
    assert report.interrupted == 1
    assert silence.p50 == pytest.approx(12)
    assert report.ends == {"text_end": 3, "failed": 1}


def test_the_slowest_and_a_typical_utterance_are_found() -> None:
    report = add_all(utterance(number, 100 + number) for number in range(10 * SAMPLE_SIZE))
    assert report.slowest is not None
    assert report.slowest.context == str(10 * SAMPLE_SIZE - 1)
    typical = report.typical()
    assert typical is not None
    assert int(typical.context) == pytest.approx(5 * SAMPLE_SIZE, rel=0.05)
    assert len(report._sample) == SAMPLE_SIZE


def test_a_log_without_sound_has_a_report_too() -> None:
    report = add_all([UtteranceRecord("call", "1")])
    assert report.typical() is None
    assert report.headlines() == report.stages() == []
    assert math.isnan(Report().gapless_pct)


def test_a_waterfall_shows_each_moment_after_the_one_before() -> None:
    assert waterfall(utterance(1, 190, request_sent=90), width=92) == [
        "                          at ms    took ms",
        "text_in                     0.0             │",
        "first_delta                10.0       10.0  ██",
        "request_sent              100.0       90.0    " + "█" * 22,
        "first_frame_wire          200.0      100.0  " + " " * 24 + "█" * 24,
        "first_audible_wire        200.0        0.0  " + " " * 47 + "▏",
    ]


def test_what_follows_the_first_sound_has_times_only_and_leaves_the_axis_to_it() -> None:
    record = utterance(1, 190, request_sent=90)
    before = waterfall(record, width=92)
    record.mark(Mark.LAST_FRAME, 60.0)
    *lines, last = waterfall(record, width=92)
    assert lines == before
    assert last == "last_frame              10000.0     9800.0"


@given(st.dictionaries(st.sampled_from(sorted(MARKS)), st.floats(-1e9, 1e9)), st.integers(0, 200))
def test_every_record_has_a_waterfall_and_a_place_in_the_report(
    marks: dict[str, float], width: int
) -> None:
    record = UtteranceRecord(marks=marks)
    lines = waterfall(record, width)
    assert len(lines) == (len(marks) + 1 if marks else 1)
    report = add_all([record])
    report.headlines()
    report.stages()
    report.typical()
