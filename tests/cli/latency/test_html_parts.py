from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_cli.latency.columns import columns_of
from qwen3tts_cli.latency.html.breakdown import (
    MOST_BINS,
    MOST_POINTS,
    MOST_ROWS,
    breakdown,
    parts,
    timeline,
)
from qwen3tts_cli.latency.tables import percentile, stated
from qwen3tts_cli.output.markup import count, ms, number, plural, signed
from qwen3tts_speech.latency import Mark, UtteranceRecord
from tests.cli.latency.pages import Read, made


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (0.004, "0"),
        (0.25, "0.25"),
        (4.24, "4.2"),
        (99.96, "100"),
        (1204.4, "1\u202f204"),
        (-3.5, "\u22123.5"),
        (math.nan, "\N{EN DASH}"),
    ],
)
def test_a_number_has_the_digits_that_matter(value: float, shown: str) -> None:
    assert number(value) == shown


def test_changes_have_signs_and_long_times_are_seconds() -> None:
    assert signed(2.0) == "+2.0"
    assert signed(-0.001) == "0"
    assert ms(12_000) == "12.0\u202fs"
    assert ms(math.inf) == "\N{EN DASH}"
    assert (plural(1, "call"), plural(1200, "call")) == ("1 call", "1\u202f200 calls")
    assert count(0) == "0"


def at(*moments: float) -> list[UtteranceRecord]:
    """Utterances at these wall clock times, with a first sound after 100, 101, … ms."""
    records = []
    for place, moment in enumerate(moments):
        record = UtteranceRecord("call", str(place), started_unix_s=moment)
        record.mark(Mark.FIRST_DELTA, 5.0)
        record.mark(Mark.FIRST_AUDIBLE_WIRE, 5.1 + place / 1000)
        records.append(record)
    return records


def test_a_quiet_hour_breaks_the_lines() -> None:
    begin = 1_790_000_000.0
    moments = [begin + place for place in range(600)] + [begin + 36_000 + p for p in range(600)]
    course = timeline(columns_of(at(*moments)))
    assert any(math.isnan(value) for value in course.p50)
    assert len(course.bin_times) <= MOST_BINS + 2
    assert course.all_points
    assert course.bin_times == sorted(course.bin_times)


def test_many_utterances_become_few_points_and_the_slowest_is_among_them() -> None:
    columns = made(utterances=4000, calls=100)
    course = timeline(columns)
    assert not course.all_points
    assert len(course.point_ms) == MOST_POINTS
    assert max(course.point_ms) == pytest.approx(np.nanmax(columns.first_sound_ms))
    assert max(course.longest_gap_ms) == pytest.approx(columns.longest_gap_ms.max())
    assert sum(course.gaps) == columns.starvations.sum()


def test_a_log_without_times_has_no_course() -> None:
    course = timeline(columns_of(at(0.0, -5.0, 1e300)))
    assert course.undated == 3
    assert course.bin_times == course.point_times == []


@given(st.lists(st.floats(-1e18, 1e18), max_size=30))
def test_any_times_make_a_course(moments: list[float]) -> None:
    course = timeline(columns_of(at(*moments)))
    assert len(course.bin_times) == len(course.p50) == len(course.gaps) <= 2 * MOST_BINS + 4
    assert len(course.point_ms) + course.undated == len(moments)


def test_parts_are_the_slowest_first_and_right() -> None:
    columns = made(utterances=400, calls=30, failed_share=0.1)
    found = parts(columns, columns.call)
    assert [part.reach for part in found] == sorted((part.reach for part in found), reverse=True)
    assert sum(part.utterances for part in found) == 400
    for part in found:
        mine = columns.first_sound_ms[columns.call.where(part.name)]
        mine = mine[np.isfinite(mine)]
        assert part.heard == len(mine)
        assert part.p50 == percentile(mine, 50)
        assert part.p95 == pytest.approx(stated(mine, 95), nan_ok=True)
        assert part.gaps == columns.starvations[columns.call.where(part.name)].sum()


def test_a_name_without_a_sound_comes_last() -> None:
    records = [*at(1e9, 1e9), UtteranceRecord("silent", "1")]
    columns = columns_of(records)
    assert [part.name for part in parts(columns, columns.call)] == ["call", "silent"]


def test_only_what_differs_has_a_table_and_long_ones_are_cut() -> None:
    shown = Read(breakdown(made(calls=40, engines=["one"], voices=["one"])))
    tabs = [attributes["id"] for _, attributes in shown.tags if attributes.get("role") == "tab"]
    assert len(tabs) == 2
    assert f"… and {40 - MOST_ROWS} faster ones." in shown.text
    assert "All are of one" in breakdown(columns_of(at(1e9)))
