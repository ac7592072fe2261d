"""The caller's wait leads, greetings stand apart, and few values give no p95 and no p99."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from qwen3tts_cli.latency import tables
from qwen3tts_cli.latency.columns import Columns, columns_of
from qwen3tts_cli.latency.comparison import compare
from qwen3tts_cli.latency.hops import hops_of, mean_paths
from qwen3tts_cli.latency.html.page import page
from qwen3tts_cli.latency.live import line_of
from qwen3tts_cli.latency.selection import typical
from qwen3tts_cli.latency.stages import FIRST_SOUND, GREETING, WAIT
from qwen3tts_cli.main import run
from qwen3tts_speech.latency import LatencyLog, Mark, UtteranceRecord


def answer(number: int, wait_ms: float) -> UtteranceRecord:
    """Its first text 100 ms before the first sound."""
    record = UtteranceRecord("call", f"a{number}", kind="answer")
    record.mark(Mark.SPEECH_END, 10.0)
    record.mark(Mark.TURN_END, 10.0 + 0.1 * wait_ms / 1000)
    record.mark(Mark.FIRST_DELTA, 10.0 + wait_ms / 1000 - 0.1)
    record.mark(Mark.FIRST_FRAME_WIRE, 10.0 + wait_ms / 1000)
    record.mark(Mark.FIRST_AUDIBLE_WIRE, 10.0 + wait_ms / 1000)
    record.end("text_end")
    return record


def greeting(number: int, after_ms: float) -> UtteranceRecord:
    record = UtteranceRecord("call", f"g{number}", kind="greeting")
    record.mark(Mark.TEXT_IN, 5.0)
    record.mark(Mark.FIRST_DELTA, 5.0)
    record.mark(Mark.FIRST_FRAME_WIRE, 5.0 + after_ms / 1000)
    record.mark(Mark.FIRST_AUDIBLE_WIRE, 5.0 + after_ms / 1000)
    record.end("text_end")
    return record


@pytest.fixture(scope="module")
def agents_log() -> Columns:
    """More greetings than answers: short calls."""
    records = [answer(number, 700 + 10 * number) for number in range(11)]
    return columns_of([*records, *(greeting(number, 40) for number in range(15))])


def test_the_callers_wait_is_the_first_row_and_greetings_have_one_of_their_own(
    agents_log: Columns,
) -> None:
    rows = {row.name: row for row in tables.headlines(agents_log)}
    assert next(iter(rows)) == WAIT
    assert rows[WAIT].p50 == pytest.approx(750, abs=0.01)
    assert (rows[WAIT].count, rows[GREETING].count) == (11, 15)
    assert rows[GREETING].p50 == pytest.approx(40, abs=0.01)
    assert rows[FIRST_SOUND].count == 11
    assert rows[FIRST_SOUND].p50 == pytest.approx(100, abs=0.01)
    middle = typical(agents_log)
    assert middle is not None
    assert agents_log.record_at(middle).context == "a5"


def test_stages_and_hops_are_those_of_answers_where_there_are_any(agents_log: Columns) -> None:
    rows = {row.name: row for row in tables.stages(agents_log)}
    assert {row.count for row in rows.values()} == {11}
    assert rows["first_delta → first_frame_wire"].p50 == pytest.approx(100, abs=0.01)
    ways = mean_paths(agents_log, hops_of(agents_log), Mark.FIRST_DELTA)
    assert [way.total_ms for way in ways] == pytest.approx([100, 100], abs=0.01)
    assert not agents_log.greeting[[row for way in ways for row in way.rows]].any()
    only = columns_of([greeting(1, 40)])
    assert tables.stages(only)
    assert mean_paths(only, hops_of(only))


def test_without_a_recogniser_the_first_sound_leads() -> None:
    columns = columns_of(greeting(1, 40) for _ in range(3))
    assert next(row.name for row in tables.headlines(columns)) == GREETING
    plain = answer(1, 700)
    del plain.marks[Mark.SPEECH_END]
    assert tables.lead_name(columns_of([plain])) == FIRST_SOUND


@pytest.mark.parametrize(
    ("count", "p95", "p99"),
    [(19, False, False), (20, True, False), (99, True, False), (100, True, True)],
)
def test_a_percentile_is_stated_from_so_many_values_on(count: int, p95: bool, p99: bool) -> None:
    row = tables.row("x", np.arange(count, dtype=np.float32))
    assert (not math.isnan(row.p95), not math.isnan(row.p99)) == (p95, p99)
    assert row.p50 == (count - 1) // 2
    assert row.largest == count - 1


def test_a_comparison_states_no_p95_of_few_values(agents_log: Columns) -> None:
    rows = {(row.name, row.what): row for row in compare(agents_log, agents_log).rows}
    assert math.isnan(rows[WAIT, "p95"].difference.after)
    assert rows[WAIT, "p50"].difference.after == pytest.approx(750, abs=0.01)
    assert not any(
        row["what"] == "p95" and row["after"] is not None and row["utterances"][1] < 20  # type: ignore[index]
        for row in compare(agents_log, agents_log).to_json()
    )


def test_the_terminal_and_json_lead_with_the_wait(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    path = tmp_path / "calls.jsonl"
    with LatencyLog(path) as log:
        for number in range(3):
            log.append(greeting(number, 40))
            log.append(answer(number, 700))
    assert run(["latency", str(path), "--group-by", "call"]) == 0
    shown = capsys.readouterr().out
    rows = [line for line in shown.splitlines() if "→ first sound" in line]
    assert "caller's last sound → first sound │ 3 │ 700.0 │   - │   - │ 700.0" in rows[0]
    assert "p95 from n = 20, p99 from n = 100" in shown
    assert "Caller's last sound → first sound (ms), by call" in shown
    assert run(["latency", str(path), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    lead = figures["headlines"][0]
    assert (lead["name"], lead["count"], lead["p95"], lead["p99"]) == (WAIT, 3, None, None)
    assert figures["fewest_for_percentiles"] == {"p95": 20, "p99": 100}
    assert run(["latency", str(path), "--worst", "1", "--worst-of", "wait"]) == 0
    assert "Utterance call/a" in capsys.readouterr().out


def test_the_page_leads_with_the_wait_and_shows_a_dash_for_few_values(agents_log: Columns) -> None:
    pytest.importorskip("plotly")
    made = page(agents_log)
    lead = made.index("The caller waited <b>750")
    assert lead < made.index("first sound, p95")
    assert "greetings, p50" in made
    assert "of 11 (p95 from 20)" in made
    assert "from the caller&#x27;s last sound" not in made.split("Where the time goes")[0]
    only = page(columns_of([greeting(1, 40)]))
    assert "Greeting after <b>40" in only


def test_the_live_view_tells_the_wait() -> None:
    assert "the caller waited 700.0 ms" in line_of(answer(1, 700))
