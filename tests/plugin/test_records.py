"""What the plugin remembers, and what it writes."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from mr_qwen3tts.log_files import MAX_WAITING, LogFiles, LogLine, append
from mr_qwen3tts.records import LAST, MAX_CALLS, MAX_PROBLEMS, Records, without_secrets
from qwen3tts_speech.latency import Mark, UtteranceRecord, read_log
from qwen3tts_wire.errors import ConnectionLost

E2E_LINE = re.compile(
    r"\[(\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}\.\d{3})\] \[E2E\] (\w+) perf_counter=([\d.]+)"
    r" utterance=(\d+) session=(\S+)((?: \w+=\S+)*)"
)
"""What the SIP plugin's script reads; the utterance directly after the time."""


@dataclass(frozen=True)
class Choices:
    log_text: bool = False
    latency_log: str | None = None
    e2e_log: str | None = None
    otel: str | None = None


class Wall:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def records(wall: Wall) -> Records:
    return Records(unix_s=wall)


def said(
    text: str = "Good morning.", *, at: float = 50.0, first_frame: float = 0.201, waited: float = 0
) -> UtteranceRecord:
    record = UtteranceRecord(voice="ryan", engine="qwen3", started_unix_s=1_800_000_000.25)
    for mark, after in {
        Mark.TEXT_IN: 0.0,
        Mark.FIRST_DELTA: 0.05,
        Mark.REQUEST_SENT: 0.052,
        Mark.RECEIVED: 0.2,
        Mark.RESAMPLED: 0.2002,
        Mark.QUEUED: 0.2004 + waited,
        Mark.FIRST_FRAME_WIRE: first_frame + waited,
    }.items():
        record.mark(mark, at + after)
    record.text = text
    record.generated_samples = record.heard_samples = 48_000
    return record


# --- utterances


def test_an_utterance_is_shown_with_its_stages_in_milliseconds_after_its_text(
    records: Records,
) -> None:
    records.utterance("call-1", "Reception", said(), outcome="said")
    (shown,) = records.last
    assert (shown.log_id, shown.number, shown.agent) == ("call-1", 1, "Reception")
    assert (shown.voice, shown.engine, shown.chars) == ("ryan", "qwen3", len("Good morning."))
    assert shown.stages_ms == {
        "first_delta": 50.0,
        "request_sent": 52.0,
        "first_sound": 200.0,
        "first_frame": 201.0,
    }
    assert (shown.heard_s, shown.generated_s, shown.interrupted) == (2.0, 2.0, False)


def test_a_stage_that_did_not_happen_is_none(records: Records) -> None:
    record = UtteranceRecord()
    record.mark(Mark.TEXT_IN, 5.0)
    records.utterance("call-1", "Reception", record, outcome="no_text")
    (shown,) = records.last
    assert set(shown.stages_ms.values()) == {None}
    assert records.snapshot()["first_frame_ms"] == {"n": 0, "p50": None, "p95": None}


def test_a_record_without_any_mark_is_shown_too(records: Records) -> None:
    records.utterance("", "", UtteranceRecord(), outcome="")
    assert len(records.last) == 1


def test_an_interruption_tells_how_soon_it_was_silent(records: Records) -> None:
    record = said()
    record.mark(Mark.INTERRUPTED, 52.0)
    record.mark(Mark.SILENT, 52.031)
    records.utterance("call-1", "Reception", record, outcome="interrupted")
    assert records.last[0].interrupted
    assert records.last[0].silence_ms == 31.0
    assert records.counted("interrupted") == 1


def test_each_conversation_counts_its_own_utterances(records: Records) -> None:
    for log_id in ("a", "b", "a"):
        records.utterance(log_id, "", said(), outcome="said")
    assert [(each.log_id, each.number) for each in records.last] == [("a", 1), ("b", 1), ("a", 2)]


def test_only_the_last_utterances_are_kept(records: Records) -> None:
    for _ in range(LAST + 5):
        records.utterance("a", "", said(), outcome="said")
    assert len(records.last) == LAST
    assert records.last[0].number == 6
    assert records.snapshot()["utterances"][0]["number"] == LAST + 5
    assert records.counted("utterances") == LAST + 5


def test_conversations_without_end_do_not_fill_the_memory(records: Records) -> None:
    for number in range(MAX_CALLS + 10):
        records.utterance(str(number), "", said(), outcome="said")
    assert len(records._numbers) == MAX_CALLS


def test_failures_and_starvation_are_counted(records: Records) -> None:
    starved = said()
    starved.starvations, starved.starved_ms = 2, 80.0
    records.utterance("a", "", starved, outcome="said")
    records.utterance("a", "", said(), outcome="connection_lost", error="It is away.")
    assert (records.counted("starved"), records.counted("failed")) == (1, 1)
    assert records.last[0].starved_ms == 80.0


def test_what_waited_for_its_turn_does_not_count_as_slow(records: Records) -> None:
    records.utterance("a", "", said(first_frame=0.25), outcome="said")
    records.utterance("a", "", said(waited=3.0), outcome="said")
    assert records.last[1].waited_ms == 3000.2
    assert records.snapshot()["first_frame_ms"] == {"n": 1, "p50": 250.0, "p95": 250.0}


def test_the_spread_is_by_nearest_rank(records: Records) -> None:
    for number in range(1, 21):
        records.utterance("a", "", said(first_frame=0.2 + number / 1000), outcome="said")
    spread = records.snapshot()["first_frame_ms"]
    assert (spread["n"], spread["p50"], spread["p95"]) == (20, 210.0, 219.0)


# --- words


def test_words_are_not_kept_unless_the_settings_say_so(records: Records) -> None:
    records.utterance(
        "a", "", said("a secret"), outcome="said", heard="a secret", remaining="another"
    )
    assert "secret" not in json.dumps(records.snapshot())
    assert "another" not in json.dumps(records.snapshot())


def test_words_are_kept_where_the_settings_say_so() -> None:
    records = Records(lambda: Choices(log_text=True))
    records.utterance("a", "", said(), outcome="said", heard="Good ", remaining="morning.")
    assert (records.last[0].heard, records.last[0].remaining) == ("Good ", "morning.")


def test_a_conversations_own_settings_go_before_the_plugins() -> None:
    records = Records(lambda: Choices(log_text=True))
    records.utterance("a", "", said(), outcome="said", heard="Good ", choices=Choices())
    assert records.last[0].heard is None


def test_settings_that_cannot_be_read_keep_no_words_and_lose_no_utterance() -> None:
    def choices() -> Choices:
        raise ValueError("MR_QWEN3TTS_LEAD_MS is no number")

    records = Records(choices)
    records.utterance("a", "", said(), outcome="said", heard="Good ")
    assert records.last[0].heard is None
    assert records.snapshot()["problems"][0]["what"] == "settings"


# --- problems


def test_a_problem_is_kept_with_its_remedy_and_logged(
    records: Records, caplog: pytest.LogCaptureFixture
) -> None:
    records.problem("server", ConnectionLost("It is away.", remedy="Start it."), "call-1")
    (problem,) = records.snapshot()["problems"]
    assert (problem["what"], problem["error"], problem["remedy"], problem["log_id"]) == (
        "server",
        "It is away.",
        "Start it.",
        "call-1",
    )
    (line,) = caplog.records
    assert line.levelno == logging.ERROR
    assert line.getMessage() == "server [call-1]: It is away. Start it."
    assert line.exc_info is None


def test_a_problem_is_one_line_of_the_log_whatever_a_far_end_has_put_into_it(
    records: Records, caplog: pytest.LogCaptureFixture
) -> None:
    records.problem("telephone", ConnectionLost("Busy\nroot: all is well \x1b[2J\u202e"))
    (line,) = caplog.records
    assert line.getMessage() == "telephone: Busy\\nroot: all is well \\x1b[2J\\u202e"


def test_the_traceback_of_what_nobody_foresaw_is_logged(
    records: Records, caplog: pytest.LogCaptureFixture
) -> None:
    try:
        raise KeyError("x")
    except KeyError as error:
        records.problem("speak", error)
    assert caplog.records[0].exc_info is not None
    assert "KeyError: 'x'" in caplog.text


def test_a_problem_that_repeats_is_counted_and_logged_once_a_minute(
    records: Records, wall: Wall, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(100):
        records.problem("server", "It is away.")
        wall.now += 1
    (problem,) = records.snapshot()["problems"]
    assert problem["times"] == 100
    assert problem["last_unix_s"] - problem["first_unix_s"] == 99
    assert [line.getMessage() for line in caplog.records] == [
        "server: It is away.",
        "server: It is away. (59 more of the kind since the last line)",
    ]


def test_another_kind_is_logged_at_once(records: Records, caplog: pytest.LogCaptureFixture) -> None:
    records.problem("server", "It is away.")
    records.problem("voice", "It is unknown.")
    assert len(caplog.records) == 2


def test_a_clock_that_was_set_back_does_not_silence_the_log(
    records: Records, wall: Wall, caplog: pytest.LogCaptureFixture
) -> None:
    records.problem("server", "It is away.")
    wall.now -= 86_400
    records.problem("server", "It is away.")
    assert len(caplog.records) == 2


def test_only_the_latest_problems_are_kept(records: Records) -> None:
    for number in range(MAX_PROBLEMS + 5):
        records.problem("voice", f"Voice {number} is unknown.")
    problems = records.snapshot()["problems"]
    assert len(problems) == MAX_PROBLEMS
    assert problems[0]["error"] == f"Voice {MAX_PROBLEMS + 4} is unknown."


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("ws://anna:pass@h:8765/v1/speech?key=k", "ws://h:8765/v1/speech"),
        ("at wss://u:p@ss@h/v1#t is away", "at wss://h/v1 is away"),
        ("http://h/a.wav?sig=1 and https://u@h/b", "http://h/a.wav and https://h/b"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer …"),
        ("no address: a@b?c", "no address: a@b?c"),
    ],
)
def test_secrets_in_addresses_are_left_out(text: str, clean: str) -> None:
    assert without_secrets(text) == clean


def test_no_secret_reaches_the_page_or_the_log(
    records: Records, caplog: pytest.LogCaptureFixture
) -> None:
    error = ConnectionLost("ws://u:hidden@h refused.", remedy="See http://h/?token=hidden")
    records.problem("server", error)
    records.utterance("a", "", said(), outcome="failed", error=str(error))
    assert "hidden" not in json.dumps(records.snapshot()) + caplog.text


def test_very_long_names_and_errors_are_cut(records: Records) -> None:
    records.problem("x" * 10_000, "y" * 1_000_000, "z" * 10_000)
    records.utterance("z" * 10_000, "a" * 10_000, said(), outcome="said", error="y" * 1_000_000)
    assert len(json.dumps(records.snapshot())) < 5_000


# --- counts


def test_counts_begin_at_nothing_and_add_up(records: Records) -> None:
    records.count("mixups")
    records.count("stale partials", 3)
    counts = records.snapshot()["counts"]
    assert (counts["mixups"], counts["stale_partials"], counts["halts"]) == (1, 3, 0)


def test_names_of_counts_are_bounded(records: Records) -> None:
    for number in range(1_000):
        records.count(f"name {number}")
    assert len(records.snapshot()["counts"]) <= 200


def test_the_snapshot_is_strict_json(records: Records) -> None:
    broken = said("half an emoji \ud83d")
    broken.starved_ms = float("nan")
    records.utterance("a\ud83d", "", broken, outcome="said")
    assert json.loads(json.dumps(records.snapshot(), allow_nan=False))


def test_threads_may_tell_problems_and_count(records: Records) -> None:
    def tell() -> None:
        for _ in range(500):
            records.problem("server", "It is away.")
            records.count("halts")

    threads = [threading.Thread(target=tell) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert records.counted("halts") == 2_000
    assert records.snapshot()["problems"][0]["times"] == 2_000


# --- files


def test_both_logs_are_written_and_only_their_owner_may_read_them(tmp_path: Path) -> None:
    latency, e2e = tmp_path / "latency.jsonl", tmp_path / "e2e.log"
    records = Records(lambda: Choices(latency_log=str(latency), e2e_log=str(e2e)))
    records.utterance("call-1", "Reception", said("a secret"), outcome="said")
    records.utterance("call-1", "Reception", said("a secret"), outcome="said")
    records.close()
    lines = list(read_log(latency))
    assert [each.call_id for each in lines] == ["call-1", "call-1"]
    assert [each.text for each in lines] == [None, None]
    assert [E2E_LINE.fullmatch(line) is not None for line in e2e.read_text().splitlines()] == (
        [True] * 8
    )
    assert {path.stat().st_mode & 0o777 for path in (latency, e2e)} == {0o600}
    assert records.snapshot()["problems"] == []


def test_the_latency_log_holds_words_where_the_settings_say_so(tmp_path: Path) -> None:
    path = tmp_path / "latency.jsonl"
    records = Records(lambda: Choices(log_text=True, latency_log=str(path)))
    records.utterance("call-1", "", said("a secret"), outcome="said")
    records.close()
    assert next(iter(read_log(path))).text == "a secret"


def test_nothing_is_written_and_no_thread_runs_unless_asked_for(records: Records) -> None:
    records.utterance("a", "", said(), outcome="said")
    assert records._files._thread is None


@pytest.mark.parametrize("where", ["missing/folder/log", "", "nul\0l", "a/folder"])
def test_a_log_that_cannot_be_written_is_a_problem_and_no_more(tmp_path: Path, where: str) -> None:
    (tmp_path / "a" / "folder").mkdir(parents=True)
    path = str(tmp_path / where)
    records = Records(lambda: Choices(latency_log=path, e2e_log=path))
    records.utterance("call-1", "", said(), outcome="said")
    records.close()
    assert {each["what"] for each in records.snapshot()["problems"]} == {"latency log", "e2e log"}
    assert len(records.last) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_a_problem_and_no_more() -> None:
    records = Records(lambda: Choices(latency_log="/dev/full"))
    records.utterance("call-1", "", said(), outcome="said")
    records.close()
    assert "full" in records.snapshot()["problems"][0]["error"]


def test_a_link_left_in_a_shared_folder_is_not_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "e2e.log"
    target.write_text("precious\n")
    link.symlink_to(target)
    with pytest.raises(OSError, match="symbolic link"):
        append(str(link), "line\n")
    assert target.read_text() == "precious\n"


def test_a_pipe_in_the_place_of_the_log_blocks_nobody(tmp_path: Path) -> None:
    path = tmp_path / "e2e.log"
    os.mkfifo(path)
    with pytest.raises(OSError, match="No such device"):
        append(str(path), "line\n")
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(OSError, match="no ordinary file"):
            append(str(path), "line\n")
    finally:
        os.close(reader)


def test_a_log_that_was_moved_away_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "e2e.log"
    append(str(path), "first\n")
    path.rename(tmp_path / "e2e.log.1")
    append(str(path), "second\n")
    assert path.read_text() == "second\n"


def test_a_disk_that_hangs_holds_nothing_up_and_is_told_of() -> None:
    problems: list[str] = []
    files = LogFiles(lambda what, _: problems.append(what))
    files._thread = threading.Thread()  # stands for one that hangs in its first write
    line = LogLine("a", 1, said(), "log", None, False)
    for _ in range(MAX_WAITING + 3):
        files.write(line)
    assert files.lost == 3
    assert problems == ["log files"] * 3


def test_what_comes_after_the_end_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "e2e.log"
    records = Records(lambda: Choices(e2e_log=str(path)))
    records.close()
    records.utterance("a", "", said(), outcome="said")
    records.close()
    assert not path.exists()


# --- spans


def test_spans_go_where_the_settings_say_without_words(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, list[UtteranceRecord]] = {}

    class Spans:
        def __init__(self, wish: str) -> None:
            self.taken = made.setdefault(wish, [])
            self.append = self.taken.append

        def close(self, timeout_s: float) -> None:
            made[f"closed within {timeout_s:.0f} s"] = []

    monkeypatch.setattr("mr_qwen3tts.log_files.open_spans", lambda wish, **_: Spans(wish))
    records = Records(lambda: Choices(otel="http://127.0.0.1:4318"))
    records.utterance("call-1", "", said("a secret"), outcome="said")
    records.utterance("call-1", "", said(), outcome="said")
    records.close()
    assert [record.text for record in made["http://127.0.0.1:4318"]] == [None, None]
    assert "closed within 1 s" in made


def test_spans_that_cannot_be_made_are_a_problem_once(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
    monkeypatch.setitem(sys.modules, name, None)
    records = Records(lambda: Choices(otel="http://127.0.0.1:4318"))
    records.utterance("call-1", "", said(), outcome="said")
    records.utterance("call-1", "", said(), outcome="said")
    records.close()
    (problem,) = records.snapshot()["problems"]
    assert (problem["what"], problem["times"]) == ("otel", 1)
    assert "mr_qwen3tts[otel]" in problem["remedy"]
