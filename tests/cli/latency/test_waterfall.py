from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_cli.latency.show import remarks, waterfall
from qwen3tts_speech.latency import MARKS, Mark, UtteranceRecord
from tests.cli.latency.test_tables import utterance


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


def test_the_clocks_uncertainty_stands_where_a_time_goes_from_one_machine_to_the_other() -> None:
    record = utterance(1, 190, request_sent=20, request_received=21, first_pcm=100, received=101)
    record.clock_error_ms = 0.42
    lines = waterfall(record)
    assert lines[0].endswith("took ms ± ms")
    marked = [line.split()[0] for line in lines[1:] if "±" in line]
    assert marked == ["request_received", "received"]
    assert "±0.4" in lines[4]
    (told,) = remarks(record)
    assert "± 0.4 ms" in told


def test_an_utterance_within_one_machine_has_no_uncertainty() -> None:
    record = utterance(1, 190, request_sent=20)
    record.clock_error_ms = 0.42
    assert "±" not in "".join(waterfall(record))
    assert remarks(record) == []


def test_gaps_and_marks_out_of_order_are_told_beneath() -> None:
    record = utterance(1, 190, request_sent=20, request_received=5, slot=30)
    record.clock_error_ms = 1.0
    record.played(position=0, starvations=2, starved_s=0.09, longest_gap_s=0.05)
    told = remarks(record)
    assert told[0] == "Out of order: request_received is 15.0 ms before request_sent."
    assert told[-1] == "Underruns: 2, 90.0 ms in all, 50.0 ms at the longest."


@pytest.mark.parametrize("width", [0, 40, 80, 200])
def test_no_line_is_wider_than_it_may_be_and_the_numbers_stay(width: int) -> None:
    record = utterance(1, 190, request_sent=20, request_received=21)
    record.clock_error_ms = 0.42
    lines = waterfall(record, width)
    assert max(map(len, lines)) <= max(width, 62)
    assert "200.0" in lines[-1]


@given(st.dictionaries(st.sampled_from(sorted(MARKS)), st.floats(-1e9, 1e9)), st.integers(0, 200))
def test_every_record_has_a_waterfall(marks: dict[str, float], width: int) -> None:
    record = UtteranceRecord(marks=marks, clock_error_ms=3.0)
    assert len(waterfall(record, width)) == (len(marks) + 1 if marks else 1)
    remarks(record)
