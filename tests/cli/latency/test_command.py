from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qwen3tts_cli.main import run
from qwen3tts_speech.latency import LatencyLog, Mark, UtteranceRecord
from tests.cli.latency.synthetic import Made, made_log


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
    assert "first delta → first sound │ 10 │ 100.0 │   - │   - │ 200.0" in shown.out
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
    assert figures["headlines"][0]["largest"] == pytest.approx(200)
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


# --- several logs, and which of their utterances


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A log of before a change, and one of after it: 25 ms faster."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    before = Made(utterances=300, calls=30, slower_ms=25, text="my number is 12")
    after = Made(utterances=200, calls=20, seed=1, began_unix_s=1_790_100_000.0)
    return (
        made_log(tmp_path / "before.jsonl", before),
        made_log(tmp_path / "after.jsonl", after),
    )


def shown_json(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    shown: dict[str, Any] = json.loads(capsys.readouterr().out, parse_constant=refuse)
    return shown


def test_folders_and_patterns_stand_for_logs(
    two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = two[0].parent
    for names in ([str(folder)], [f"{folder}/*.jsonl"], [str(two[0]), str(two[1])]):
        assert run(["latency", *names, "--json"]) == 0
        assert shown_json(capsys)["utterances"] == 500


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (["--engine", "qwen3", "--engine", "emb*"], 300),
        (["--engine", "qwen3"], 140),
        (["--engine", "qwen3", "--voice", "de"], 70),
        (["--call", "call-000[01]"], 20),
        (["--ended", "failed"], 3),
        (["--line", "sip", "--codec", "PCMU"], 300),
        (["--since", "2026-09-21T14:20:00Z", "--until", "2026-09-21T14:21:00Z"], 10),
    ],
)
def test_filters_choose_utterances(
    two: tuple[Path, Path], options: list[str], count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["latency", str(two[0]), "--json", *options]) == 0
    assert shown_json(capsys)["utterances"] == count


def test_filters_that_nothing_fits_are_told_of(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["latency", str(log), "--engine", "none"]) == 1
    assert "None of the 10 utterances" in capsys.readouterr().err


def test_a_missing_log_is_an_error_though_the_others_are_shown(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["latency", "nowhere.jsonl", str(log)]) == 1
    shown = capsys.readouterr()
    assert "10 utterances" in shown.out
    assert "nowhere.jsonl: No such file or folder." in shown.err


def test_a_log_given_twice_counts_once(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["latency", str(log), str(log)]) == 0
    shown = capsys.readouterr()
    assert "10 utterances" in shown.out
    assert "was given more than once" in shown.err


def test_a_pipe_is_read(log: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "qwen3tts_cli.main", "latency", "-", "--worst", "1"],
        input=log.read_bytes(),
        env={"PYTHONPATH": ":".join(sys.path), "COLUMNS": "100"},
        capture_output=True,
        check=True,
    )
    assert "Utterance a/10:" in done.stdout.decode()


# --- what is shown


def test_the_worst_have_their_waterfalls_worst_first(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["latency", str(log), "--worst", "3"]) == 0
    shown = capsys.readouterr().out
    places = [shown.index(f"Utterance {name}:") for name in ("a/10", "b/9", "a/8")]
    assert places == sorted(places)
    assert "Utterance b/7:" not in shown


def test_the_worst_are_in_the_json_too(
    two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["latency", str(two[0]), "--json", "--worst", "2", "--worst-of", "gap"]) == 0
    first, second = shown_json(capsys)["utterance_list"]
    assert first["value_ms"] == pytest.approx(first["longest_gap_ms"], abs=0.01)
    assert first["value_ms"] >= second["value_ms"] > 0
    assert "text" not in first


def test_words_are_shown_only_where_they_are_asked_for(
    two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["latency", str(two[0])]) == 0
    assert "my number" not in capsys.readouterr().out
    assert run(["latency", str(two[0]), "--with-text"]) == 0
    assert "my number is 12" in capsys.readouterr().out


def test_groups_have_a_table(two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["latency", str(two[0]), "--group-by", "engine"]) == 0
    shown = capsys.readouterr().out
    assert "First delta → first sound (ms), by engine" in shown
    assert "embedded │        160" in shown
    assert run(["latency", str(two[0]), "--group-by", "ended", "--json"]) == 0
    groups = shown_json(capsys)["groups"]
    assert {"text_end", "interrupted", "failed"} == {each["name"] for each in groups}
    assert next(each for each in groups if each["name"] == "failed")["gapless_pct"] is None


def test_names_that_look_like_markup_are_shown_as_they_are(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = UtteranceRecord("[/bold]", "[red]1", engine="[/x]")
    record.mark(Mark.TEXT_IN, 1.0)
    odd = tmp_path / "[b]calls.jsonl"
    with LatencyLog(odd) as writer:
        writer.append(record)
    assert run(["latency", str(odd), "--group-by", "engine", "--id", "[/bold]"]) == 0
    shown = capsys.readouterr().out
    assert "│ [/x] │" in shown
    assert "Utterance [/bold]/[red]1:" in shown
    trace = tmp_path / "[i].json"
    assert run(["latency", str(log), "--group-by", "log", "--perfetto", str(trace)]) == 0
    assert trace.exists()


def test_clocks_that_ran_backwards_are_counted_and_no_figure_is_nan(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = UtteranceRecord("a", "back", started_unix_s=5.0, clock_error_ms=1.0)
    record.mark(Mark.FIRST_DELTA, 10.0)
    record.mark(Mark.REQUEST_SENT, 10.1)
    record.mark(Mark.REQUEST_RECEIVED, 9.0)
    record.mark(Mark.FIRST_AUDIBLE_WIRE, 10.2)
    with LatencyLog(log) as writer:
        writer.append(record)
    assert run(["latency", str(log), "--json"]) == 0
    figures = shown_json(capsys)
    assert (figures["out_of_order"], figures["utterances"]) == (1, 11)
    assert run(["latency", str(log), "--id", "a/back"]) == 0
    shown = capsys.readouterr()
    assert "1 utterances have marks out of order" in shown.err
    assert "Out of order: request_received is 1100.0 ms before request_sent." in shown.out
    assert "nan" not in shown.out


# --- comparison and other formats


def test_two_sets_are_compared(two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["latency", str(two[1]), "--before", str(two[0])]) == 0
    shown = capsys.readouterr().out
    assert "faster" in shown
    assert "200 utterances" in shown
    assert run(["latency", str(two[1]), "--before", str(two[0]), "--json"]) == 0
    assert shown_json(capsys)["comparison"]


def test_one_log_is_split_at_a_moment(
    two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(two[0].parent)
    assert run(["latency", folder, "--split", "2026-09-22", "--json"]) == 0
    shown = shown_json(capsys)
    assert shown["utterances"] == 200
    assert shown["comparison"]
    assert run(["latency", folder, "--split", "2030-01-01"]) == 1
    assert "No utterance is left after the change" in capsys.readouterr().err
    assert run(["latency", folder, "--split", "2020-01-01"]) == 1
    assert "No utterance is left before the change" in capsys.readouterr().err


def test_a_missing_log_of_before_is_an_error(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["latency", str(log), "--before", "nowhere.jsonl"]) == 1
    shown = capsys.readouterr()
    assert "nowhere.jsonl" in shown.err
    assert not shown.out


def test_lines_of_mr_sip_go_out_and_come_back(
    two: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["latency", str(two[0]), "--to", "mr_sip"]) == 0
    lines = capsys.readouterr().out
    assert all("[E2E]" in line for line in lines.splitlines())
    assert "my number" not in lines
    written = tmp_path / "sip_e2e_latency.txt"
    written.write_text(lines)
    assert run(["latency", str(written), "--json"]) == 0
    assert 280 <= shown_json(capsys)["utterances"] <= 300


def test_lines_of_ours_are_those_that_the_filters_take(
    two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["latency", str(two[0]), "--to", "ours", "--call", "call-0003"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [UtteranceRecord.from_json(line).call_id for line in lines] == ["call-0003"] * 10
    assert "my number" not in "".join(lines)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--worst", "3", "--slowest"], "choose one of"),
        (["--worst", "3", "--id", "x"], "choose one of"),
        (["--follow", "--json"], "leave out"),
        (["--follow", "--html", "x.html"], "only shows"),
        (["--follow", "--before", "x"], "only shows"),
        (["--before", "x", "--split", "1h"], "choose one of"),
        (["--to", "mr_sip", "--html", "x.html"], "leave out"),
        (["--since", "soon"], "is no moment"),
        (["--split", "soon"], "is no moment"),
        (["--since", "1h", "--until", "2h"], "not after"),
        (["--worst", "0"], "--worst"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(
    log: Path, options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["latency", str(log), *options]) == 2
    assert told in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_forty_columns_keep_the_names_and_say_what_they_leave_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = made_log(tmp_path / "calls.jsonl", Made(60))
    monkeypatch.setenv("COLUMNS", "40")
    assert run(["latency", str(log)]) == 0
    shown = capsys.readouterr().out
    tables_shown = shown[: shown.index("utterances,")]
    assert "…" not in tables_shown
    assert "request_" in tables_shown
    assert "p50" in tables_shown
    assert "p95" in tables_shown
    assert "in a wider terminal" in tables_shown
    assert max(map(len, tables_shown.splitlines()[1:5])) <= 40


@pytest.mark.parametrize("option", ["--html", "--perfetto"])
@pytest.mark.parametrize("as_before", [False, True])
def test_a_log_is_never_overwritten_by_what_is_made_of_it(
    option: str, as_before: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, other = made_log(tmp_path / "log.jsonl"), made_log(tmp_path / "other.jsonl", Made(20))
    target = tmp_path / "page"
    target.symlink_to(other if as_before else log)
    old = log.read_bytes(), other.read_bytes()
    assert run(["latency", str(log), "--before", str(other), option, str(target)]) == 2
    assert "is one of the logs" in capsys.readouterr().err
    assert (log.read_bytes(), other.read_bytes()) == old


def test_one_file_cannot_be_page_and_trace(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = str(tmp_path / "both")
    assert run(["latency", str(log), "--html", both, "--perfetto", both]) == 2
    assert "the same file" in capsys.readouterr().err


@pytest.mark.parametrize("view", [["--json"], ["--worst", "2"], ["--id", "a/2"], ["--slowest"]])
def test_lines_for_programs_take_no_view(
    view: list[str], log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["latency", str(log), "--to", "ours", *view]) == 2
    assert capsys.readouterr().out == ""
