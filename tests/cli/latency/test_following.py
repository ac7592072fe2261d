"""Growing logs, followed."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from qwen3tts_cli.latency.following import (
    MAX_UTTERANCES,
    RESCAN_INTERVAL_S,
    LineSplitter,
    LogFollower,
    Tail,
)
from qwen3tts_cli.latency.live import StandardInput, line_of, view
from qwen3tts_cli.latency.selection import Selection
from qwen3tts_speech.e2e_lines import E2eWriter
from qwen3tts_speech.latency import MAX_LINE_BYTES, Mark, UtteranceRecord
from qwen3tts_wire.errors import BadRequest
from tests.cli.latency.synthetic import Made, made_log, made_records


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "calls.jsonl"


def add(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@given(st.lists(st.binary(max_size=20)))
def test_lines_are_the_same_however_their_bytes_come(pieces: list[bytes]) -> None:
    lines = LineSplitter()
    found = [line for piece in pieces for line in lines.feed(piece)] + lines.end()
    assert b"".join(found) == b"".join(pieces)
    assert all(line.count(b"\n") <= 1 for line in found)
    assert all(line.endswith(b"\n") for line in found[:-1])


def test_a_line_without_end_is_not_held_in_memory() -> None:
    lines = LineSplitter()
    for _ in range(5):
        assert lines.feed(b"x" * (MAX_LINE_BYTES // 2)) == []
        assert len(lines._rest) <= MAX_LINE_BYTES
    assert lines.feed(b"end\nnext\n") == [b"next\n"]
    assert lines.too_long == 1


def test_a_line_is_there_when_it_is_whole(path: Path) -> None:
    add(path, b"one\ntw")
    tail = Tail(path)
    assert tail.poll() == [b"one\n"]
    assert tail.poll() == []
    add(path, b"o\n")
    assert tail.poll() == [b"two\n"]
    assert tail.news == []
    tail.close()


def test_a_file_that_is_not_there_yet_is_waited_for_and_told_once(path: Path) -> None:
    tail = Tail(path)
    assert tail.poll() == tail.poll() == []
    assert tail.news == [f"{path}: No such file or directory; waiting for it."]
    add(path, b"one\n")
    assert tail.poll() == [b"one\n"]
    tail.close()


def test_what_was_added_before_a_file_was_moved_away_is_not_lost(path: Path) -> None:
    add(path, b"one\n")
    tail = Tail(path)
    tail.poll()
    add(path, b"two\nhalf")
    path.rename(path.with_suffix(".jsonl.1"))
    assert tail.poll() == [b"two\n"]
    assert tail.poll() == []  # nobody has made a new one yet
    add(path.with_suffix(".jsonl.1"), b" a line\n")
    assert tail.poll() == [b"half a line\n"]
    add(path, b"three\n")
    assert [line for _ in range(3) for line in tail.poll()] == [b"three\n"]
    assert tail.news == [f"{path} was moved away or replaced; it is read from the beginning."]
    tail.close()


def test_a_file_that_was_cut_off_is_read_from_the_beginning(path: Path) -> None:
    add(path, b"one\ntwo\nhal")
    tail = Tail(path)
    tail.poll()
    path.write_bytes(b"new\n")
    assert [line for _ in range(3) for line in tail.poll()] == [b"new\n"]
    assert tail.news == [f"{path} was cut off; it is read from the beginning."]
    tail.close()


def test_a_large_file_comes_in_parts(path: Path) -> None:
    add(path, b"0123456789abcde\n" * 200_000)
    tail = Tail(path)
    parts = []
    while found := tail.poll():
        parts.append(len(found))
    assert sum(parts) == 200_000
    assert len(parts) >= 3
    tail.close()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_named_pipe_holds_nobody_and_says_how_it_is_followed(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    tail = Tail(pipe)
    assert tail.poll() == tail.poll() == []
    assert len(tail.news) == 1
    assert "standard input" in tail.news[0]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # A short name: the view's line holds the path beside the figures.
    monkeypatch.chdir(tmp_path)
    return Path("calls.jsonl")


def shown(following: LogFollower, width: int = 100, height: int = 40) -> str:
    console = Console(file=io.StringIO(), width=width, height=height)
    console.print(view(following, width, height))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_utterances_come_as_they_are_written(log: Path) -> None:
    following = LogFollower([str(log)], Selection())
    assert following.poll(0.0) == []
    made_log(log, Made(utterances=3))
    assert [record.context for record in following.poll(1.0)] == ["0", "1", "2"]
    assert following.poll(2.0) == []
    made_log(log, Made(utterances=2, seed=1))
    assert len(following.poll(3.0)) == 2
    assert following.seen == 5
    following.close()


def test_only_those_that_the_filters_take(log: Path) -> None:
    made_log(log, Made(utterances=20, calls=2))
    following = LogFollower([str(log)], Selection({"call": ("call-0001",)}))
    assert len(following.poll(0.0)) == following.seen == 10
    following.close()


def test_a_folder_is_looked_through_again_for_new_logs(tmp_path: Path) -> None:
    made_log(tmp_path / "one.jsonl", Made(utterances=1))
    following = LogFollower([str(tmp_path)], Selection())
    assert len(following.poll(0.0)) == 1
    made_log(tmp_path / "two.jsonl", Made(utterances=2, seed=1))
    assert following.poll(RESCAN_INTERVAL_S / 2) == []
    assert len(following.poll(RESCAN_INTERVAL_S)) == 2
    assert following.files == [f"{tmp_path}/one.jsonl", f"{tmp_path}/two.jsonl"]
    following.close()


def test_no_more_than_the_last_are_held_and_none_of_their_words(log: Path) -> None:
    made_log(log, Made(utterances=MAX_UTTERANCES + 200, text="my number is 12"))
    following = LogFollower([str(log)], Selection())
    while following.poll(0.0):
        pass
    assert following.seen == MAX_UTTERANCES + 200
    assert len(following.last) == MAX_UTTERANCES
    assert {record.text for record in following.last} == {None}
    following.close()


def test_damage_and_newer_versions_are_counted(log: Path) -> None:
    made_log(log, Made(utterances=3))
    log.write_bytes(b"half a\n\n" + log.read_bytes().replace(b'"v":1', b'"v":3', 1))
    following = LogFollower([str(log)], Selection())
    assert len(following.poll(0.0)) == 3
    assert (following.damaged, following.newer) == (1, 1)
    text = shown(following)
    assert "1 lines are no utterances." in text
    assert "1 utterances were written by a newer version." in text
    following.close()


def test_mr_sips_lines_are_followed_too(log: Path) -> None:
    with log.open("w") as file:
        writer = E2eWriter(file)
        for record in made_records(Made(utterances=50, every_s=120.0)):
            writer.append(record)
    following = LogFollower([str(log)], Selection())
    # The last ones may still get lines.
    assert writer.written - 40 < len(following.poll(0.0)) <= writer.written
    following.close()


def test_a_compressed_log_is_refused() -> None:
    with pytest.raises(BadRequest, match="is compressed"):
        LogFollower(["calls.jsonl.gz"], Selection())


def test_what_is_piped_in_is_followed_to_its_end() -> None:
    reading, writing = os.pipe()
    standard = StandardInput(reading)
    following = LogFollower(["-"], Selection(), standard=standard)
    assert following.poll(0.0) == []
    record = next(made_records())
    os.write(writing, record.to_json().encode() + b"\n" + record.to_json().encode())
    assert len(following.poll(1.0)) == 1
    os.close(writing)
    assert len(following.poll(2.0)) == 1
    assert standard.ended
    os.close(reading)


def test_the_view_shows_figures_and_the_latest_first(log: Path) -> None:
    made_log(log, Made(utterances=40, failed_share=0))
    following = LogFollower([str(log)], Selection())
    following.poll(0.0)
    text = shown(following, height=60)
    assert "40 utterances" in text
    assert "first delta → first sound" in text
    assert "% without a gap" in text
    assert text.index("call-0009/39") < text.index("call-0009/38")
    assert "slot → first_pcm" in text
    following.close()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (200, 50)])
def test_the_view_fits_its_terminal_where_there_is_room(log: Path, width: int, height: int) -> None:
    made_log(log, Made(utterances=40))
    following = LogFollower([str(log)], Selection())
    following.poll(0.0)
    lines = shown(following, width, height).splitlines()
    assert max(map(len, lines)) <= max(width, 60)
    assert len(lines) <= max(height, 20)
    following.close()


def test_an_empty_view_says_so(log: Path) -> None:
    following = LogFollower([str(log)], Selection())
    following.poll(0.0)
    assert "No utterance yet." in shown(following)
    assert "waiting for it" in shown(following, width=400)
    following.close()


def test_names_of_the_other_end_steer_no_terminal(log: Path) -> None:
    record = UtteranceRecord("a\x1b[31m\nb", "1", end_reason="\x1b]0;x\x07")
    log.write_text(record.to_json() + "\n")
    following = LogFollower([str(log)], Selection())
    following.poll(0.0)
    for text in (shown(following), line_of(record)):
        assert "\x1b" not in text
        assert "\x07" not in text
    assert "\n" not in line_of(record)
    following.close()


def test_one_line_says_what_was_slow_and_what_went_wrong() -> None:
    record = UtteranceRecord("a", "7", engine="qwen3", voice="en")
    record.mark(Mark.FIRST_DELTA, 1.0)
    record.mark(Mark.FIRST_AUDIBLE_WIRE, 1.25)
    record.mark(Mark.INTERRUPTED, 2.0)
    record.mark(Mark.SILENT, 2.015)
    record.played(position=0, starvations=1, starved_s=0.04, longest_gap_s=0.04)
    record.end("interrupted")
    line = line_of(record)
    for part in ("a/7", "first sound after 250.0 ms", "gaps 1, longest 40.0 ms", "interrupted"):
        assert part in line
    assert "silent after 15.0 ms" in line
    assert "qwen3 en" in line
    assert "no sound" in line_of(UtteranceRecord(started_unix_s=1e300))
