from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_cli.latency.following import LineSplitter, Tail
from qwen3tts_speech.latency import MAX_LINE_BYTES


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
