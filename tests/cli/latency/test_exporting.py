from __future__ import annotations

import errno
import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qwen3tts_cli.main import run
from tests.cli.latency.synthetic import Made, made_log
from tests.conftest import require_package


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return made_log(tmp_path / "calls.jsonl", Made(utterances=40, calls=4, text="my number is 12"))


def test_the_tables_are_shown_and_the_files_are_written(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require_package("plotly", "pip install 'mr_qwen3tts[plots]'")
    page, trace = tmp_path / "report.html", tmp_path / "trace.json"
    arguments = ["latency", str(log), "--html", str(page), "--perfetto", str(trace)]
    assert run([*arguments, "--title", "Before & after", "--call", "call-0001"]) == 0
    shown = capsys.readouterr()
    assert "10 utterances" in shown.out
    assert f"{page} (" in shown.err
    assert f"{trace} (10 utterances of 1 calls)" in shown.err
    text = page.read_text("utf-8")
    assert "<title>Before &amp; after</title>" in text
    assert "call-0001" in text
    assert "call-0002" not in text
    assert "call-0001" in json.dumps(json.loads(trace.read_text("utf-8")))
    for written in (text, trace.read_text("utf-8")):
        assert "my number" not in written


def test_the_page_compares_where_there_is_something_to_compare_with(
    log: Path, tmp_path: Path
) -> None:
    require_package("plotly", "pip install 'mr_qwen3tts[plots]'")
    before = made_log(tmp_path / "before.jsonl", Made(utterances=40, calls=4, seed=3))
    alone, both = tmp_path / "alone.html", tmp_path / "both.html"
    assert run(["latency", str(log), "--html", str(alone)]) == 0
    assert run(["latency", str(log), "--before", str(before), "--html", str(both)]) == 0
    assert len(both.read_bytes()) > len(alone.read_bytes())


def test_without_plotly_the_extra_is_named(
    log: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "plotly"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "plotly", None)
    assert run(["latency", str(log), "--html", str(tmp_path / "report.html")]) == 3
    assert "mr_qwen3tts[plots]" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--html", "--perfetto"])
def test_a_place_where_nothing_can_be_written_is_told(
    option: str, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require_package("plotly", "pip install 'mr_qwen3tts[plots]'")
    assert run(["latency", str(log), option, str(tmp_path / "nowhere" / "file")]) == 1
    assert "nowhere" in capsys.readouterr().err


def test_a_log_that_changes_meanwhile_is_told_of_with_what_to_do(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from qwen3tts_cli.latency import show

    chosen = show.chosen_rows

    def cut_off(*given: Any) -> list[int]:
        log.write_bytes(b"")
        return chosen(*given)

    monkeypatch.setattr(show, "chosen_rows", cut_off)
    assert run(["latency", str(log), "--worst", "2"]) == 1
    shown = capsys.readouterr().err
    assert "was changed while it was being read" in shown
    assert "--follow" in shown


def test_a_reader_that_stops_reading_lines_is_no_error_to_shout_about(log: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "qwen3tts_cli.main", "latency", str(log), "--to", "ours"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PYTHONPATH": ":".join(sys.path)},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        told = process.stderr.read()
        assert process.wait(60) in (0, 1)
    assert b"Traceback" not in told
    assert str(errno.EPIPE).encode() not in told


def test_what_was_logged_privately_is_read_without_making_it_public(
    log: Path, tmp_path: Path
) -> None:
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    trace = tmp_path / "trace.json"
    assert run(["latency", str(log), "--perfetto", str(trace)]) == 0
    assert stat.S_IMODE(trace.stat().st_mode) == 0o600


@pytest.mark.network
def test_utterances_go_to_a_collector(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require_package("opentelemetry.sdk", "pip install 'mr_qwen3tts[otel]'")
    from tests.speech.collector import collecting

    with collecting() as collector:
        collector.hold.set()
        assert run(["latency", str(log), "--ended", "text_end", "--otel", collector.url]) == 0
        spans = collector.spans()
    told = capsys.readouterr()
    count = int(told.out.partition(" utterances, ")[0].rsplit("\n", 1)[-1])
    assert f"{count} utterances were sent to the collector." in told.err
    assert len(spans) >= count
    assert b"my number" not in b"".join(each.SerializeToString() for each in collector.requests)
