from __future__ import annotations

import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from qwen3tts_cli.latency.bootstrap import Verdict
from qwen3tts_cli.latency.columns import Columns, columns_of
from qwen3tts_cli.latency.comparison import (
    ComparedQuantity,
    Comparison,
    RowKind,
    calls_of,
    compare,
    notes_of,
    print_comparison,
)
from qwen3tts_cli.latency.reading import find_logs, read_columns
from qwen3tts_cli.latency.stages import FIRST_SOUND, SILENCE
from qwen3tts_speech.latency import UtteranceRecord
from tests.cli.latency.synthetic import Made, made_log, made_records

ENGINE = "slot → first_pcm"


def made(seed: int = 0, **how: object) -> Columns:
    return columns_of(made_records(Made(seed=seed, **{"utterances": 600, "calls": 60, **how})))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def slower() -> Comparison:
    """The engine takes 25 ms longer, and nothing else changed."""
    return compare(made(), made(seed=1, slower_ms=25))


def row(comparison: Comparison, name: str, what: str = "p50") -> ComparedQuantity:
    (found,) = [
        each for each in comparison.rows if name in (each.name, each.marks) and each.what == what
    ]
    return found


def test_the_hop_that_was_changed_is_found_and_no_other(slower: Comparison) -> None:
    changed = {
        each.marks or each.name
        for each in slower.rows
        if each.difference.verdict in (Verdict.BETTER, Verdict.WORSE)
    }
    assert changed == {FIRST_SOUND, "asked → first sound", ENGINE}
    difference = row(slower, ENGINE).difference
    assert difference.verdict is Verdict.WORSE
    assert difference.low < 25 < difference.high


def test_every_kind_of_figure_is_compared(slower: Comparison) -> None:
    assert row(slower, SILENCE).kind is RowKind.HEADLINE
    assert row(slower, "without a gap", "share").unit == "%"
    assert row(slower, "failed", "share").kind is RowKind.SHARE
    assert row(slower, "request_sent → request_received").clock_ms == pytest.approx(0.8)
    assert row(slower, ENGINE).clock_ms == 0
    assert row(slower, ENGINE).difference.level > row(slower, FIRST_SOUND).difference.level


def test_the_figures_for_programs_are_json_without_nan(slower: Comparison) -> None:
    rows = json.loads(json.dumps(slower.to_json(), allow_nan=False))
    assert rows[0]["name"] == FIRST_SOUND
    assert rows[0]["verdict"] == "worse"
    assert rows[0]["low"] < rows[0]["change"] < rows[0]["high"]
    few = compare(made(calls=2), made(seed=1, calls=2)).to_json()
    assert json.loads(json.dumps(few, allow_nan=False))[0]["low"] is None


def test_the_table_names_what_changed_and_why_something_cannot_be_told(slower: Comparison) -> None:
    shown = printed(slower)
    line = next(line for line in shown.splitlines() if "engine: first samples" in line)
    assert "slower" in line
    assert "Before: 600 utterances of 60 calls. After: 600 of 60." in shown
    assert any("Cannot tell, interrupted → silence (p95)" in note for note in notes_of(slower))
    few = printed(compare(made(calls=3), made(seed=1)))
    assert "Only 3 calls before: at least 8 are needed." in few
    assert "slower" not in few
    assert "nan" not in few


def printed(comparison: Comparison) -> str:
    console = Console(file=io.StringIO(), width=160, highlight=False)
    print_comparison(console, comparison)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_an_utterance_without_a_call_is_a_call_of_its_own() -> None:
    names = ["a", "", "a", "", "b"]
    calls = calls_of(columns_of(UtteranceRecord(call_id=name) for name in names))
    assert calls[0] == calls[2]
    assert len(np.unique(calls)) == 4


def test_sets_that_are_not_alike_are_told() -> None:
    comparison = compare(made(engines=["one"]), made(seed=1, engines=["other"]))
    assert any("differ in engine for 100%" in remark for remark in comparison.remarks)
    assert not any("differ in voice" in remark for remark in comparison.remarks)


def test_an_utterance_in_both_sets_is_told(tmp_path: Path) -> None:
    columns = read_columns(find_logs([made_log(tmp_path / "log.jsonl", Made(20))]).files)
    assert "20 utterances stand in both sets." in compare(columns, columns).remarks
    halves = np.arange(20) < 10
    apart = compare(columns.select(halves), columns.select(~halves))
    assert not any("both sets" in remark for remark in apart.remarks)


def test_a_hop_of_one_set_only_is_told_and_not_compared() -> None:
    records = list(made_records(Made(50)))
    for record in records:
        record.marks.pop("resampled", None)
    comparison = compare(made(), columns_of(records))
    assert not [each for each in comparison.rows if "resampled" in each.marks]
    assert any("received → resampled" in remark for remark in comparison.remarks)


@pytest.mark.parametrize("empty_first", [True, False])
def test_an_empty_set_compares_with_nothing(empty_first: bool) -> None:
    empty, full = columns_of([]), made(utterances=30)
    comparison = compare(*((empty, full) if empty_first else (full, empty)))
    assert {each.difference.verdict for each in comparison.rows} == {Verdict.CANNOT_TELL}
    assert all(math.isnan(each.difference.low) for each in comparison.rows)
    printed(comparison)
