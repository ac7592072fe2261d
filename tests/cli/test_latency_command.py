from __future__ import annotations

import json
from pathlib import Path

import pytest

from qwen3tts_cli.main import run
from qwen3tts_speech.latency import LatencyLog, Mark, UtteranceRecord


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten utterances of two calls, the tenth the slowest."""
    monkeypatch.setenv("COLUMNS", "120")
    path = tmp_path / "calls.jsonl"
    with LatencyLog(path) as writer:
        for number in range(1, 11):
            record = UtteranceRecord("ab"[number % 2], str(number))
            record.mark(Mark.FIRST_DELTA, 10.0)
            record.mark(Mark.RECEIVED, 10.0 + number / 100)
            record.mark(Mark.FIRST_FRAME_WIRE, 10.0 + number / 50)
            record.mark(Mark.FIRST_AUDIBLE_WIRE, 10.0 + number / 50)
            record.end("text_end")
            writer.append(record)
    return path


def test_a_table_and_the_waterfall_of_a_typical_utterance(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["latency", str(log)]) == 0
    shown = capsys.readouterr()
    assert "first delta → first sound │ 10 │ 100.0 │ 200.0 │ 200.0" in shown.out
    assert "first_delta → received" in shown.out
    assert "10 utterances, 10 played, 0 interrupted." in shown.out
    assert "100.00 % without a gap" in shown.out
    assert "Utterance a/5:" in shown.out or "Utterance b/5:" in shown.out
    assert shown.err.strip() == ""


def test_a_narrow_terminal_breaks_names_but_no_number(
    log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "64")
    with LatencyLog(log) as writer:
        record = UtteranceRecord("c", "1")
        record.mark(Mark.FIRST_FRAME_WIRE, 10.0)
        record.mark(Mark.FIRST_AUDIBLE_WIRE, 133.4567)
        writer.append(record)
    assert run(["latency", str(log)]) == 0
    shown = capsys.readouterr().out
    assert "123456.7" in shown
    assert "…" not in shown


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--slowest"], "Utterance a/10:"),
        (["--id", "b/3"], "Utterance b/3:"),
        (["--id", "7"], "Utterance b/7:"),
        (["--id", "a"], "Utterance a/2:"),
    ],
)
def test_the_waterfall_shows_the_utterance_asked_for(
    log: Path, arguments: list[str], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["latency", str(log), *arguments]) == 0
    assert shown in capsys.readouterr().out


def test_the_figures_come_as_json(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["latency", str(log), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["utterances"] == figures["played"] == 10
    assert figures["headlines"][0]["p95"] == pytest.approx(200)
    assert figures["gapless_pct"] == 100


def test_damaged_lines_are_named_and_the_rest_is_counted(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_bytes(b"[bold]\n\x00\xff\n" + log.read_bytes() + b"{" * 40)
    assert run(["latency", str(log)]) == 0
    shown = capsys.readouterr()
    assert "10 utterances" in shown.out
    assert "3 of 13 lines are no utterances" in shown.err
    assert "line 1: not JSON" in shown.err
    assert "line 2: not UTF-8" in shown.err
    assert "line 13: not JSON" in shown.err


@pytest.mark.parametrize("content", [b"", b"\n\n", b"hello\n"])
def test_a_log_without_utterances_is_an_error(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_bytes(content)
    assert run(["latency", str(path)]) == 1
    assert "holds no utterance" in capsys.readouterr().err


def test_an_utterance_that_is_not_there_is_an_error(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["latency", str(log), "--id", "nobody"]) == 1
    assert "is called nobody" in capsys.readouterr().err
