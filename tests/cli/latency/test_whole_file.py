"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from qwen3tts_cli.output.writable import whole_file


def test_an_error_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_bytes(b"old")
    with pytest.raises(TypeError), whole_file(path) as file:
        file.write("no bytes")  # type: ignore[call-overload]
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_is_its_owners_alone_and_may_have_the_longest_name(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 250 + ".html")
    with whole_file(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_link_stays_one_and_what_it_names_is_written(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    link = tmp_path / "link"
    link.symlink_to("real")
    with whole_file(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_what_is_no_plain_file_is_written_into_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    with whole_file(pipe) as file:
        file.write(b"new")
    reader.join(10)
    assert got == [b"new"]
    assert pipe.is_fifo()


def test_an_error_of_another_file_keeps_its_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised, whole_file(tmp_path / "page.html"):
        (tmp_path / "log.jsonl").read_bytes()
    assert raised.value.filename == str(tmp_path / "log.jsonl")
    assert not list(tmp_path.iterdir())
