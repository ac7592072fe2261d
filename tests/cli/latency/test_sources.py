from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from qwen3tts_cli.latency.reading import ResolvedLogs, find_logs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Logs of all names, and other things beside them."""
    for name in (
        "calls.jsonl",
        "calls.jsonl.1",
        "calls.jsonl.2.gz",
        "sip_e2e_latency.log",
        "deep/er/more.jsonl",
        "notes.txt",
        ".hidden/old.jsonl",
        ".calls.jsonl.swp",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


def paths(found: ResolvedLogs, folder: Path) -> list[str]:
    return [each.path.relative_to(folder).as_posix() for each in found.files]


def test_a_folder_stands_for_the_logs_in_it_at_any_depth(folder: Path) -> None:
    found = find_logs([str(folder)])
    assert paths(found, folder) == [
        "calls.jsonl",
        "calls.jsonl.1",
        "calls.jsonl.2.gz",
        "deep/er/more.jsonl",
        "sip_e2e_latency.log",
    ]
    assert all(each.found for each in found.files)
    assert not found.missing + found.remarks


def test_a_pattern_stands_for_what_fits_it(folder: Path) -> None:
    assert paths(find_logs([f"{folder}/calls.jsonl*"]), folder) == [
        "calls.jsonl",
        "calls.jsonl.1",
        "calls.jsonl.2.gz",
    ]
    assert paths(find_logs([f"{folder}/**/*.jsonl"]), folder) == [
        "calls.jsonl",
        "deep/er/more.jsonl",
    ]


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(folder: Path) -> None:
    (folder / "calls[1].jsonl").write_text("")
    assert paths(find_logs([f"{folder}/calls[1].jsonl"]), folder) == ["calls[1].jsonl"]


def test_a_file_is_read_once_whatever_it_is_called(folder: Path) -> None:
    (folder / "link.jsonl").symlink_to(folder / "calls.jsonl")
    os.link(folder / "calls.jsonl", folder / "hard.jsonl")
    log = str(folder / "calls.jsonl")
    names = [log, log, f"{folder}/./calls.jsonl", f"{folder}/link.jsonl", f"{folder}/hard.jsonl"]
    found = find_logs([*names, "-", "-"])
    assert [each.name for each in found.files] == [log, "standard input"]
    assert f"{log} was given more than once; it is read once." in found.remarks
    assert len(found.remarks) == 4


def test_a_folder_that_was_read_already_is_no_empty_folder(folder: Path) -> None:
    found = find_logs([str(folder), str(folder)])
    assert not found.missing
    assert len(found.files) == 5


def test_what_is_not_there_is_named_and_the_rest_is_found(folder: Path) -> None:
    found = find_logs([f"{folder}/nothing.jsonl", f"{folder}/calls.jsonl", f"{folder}/*.none", ""])
    assert paths(found, folder) == ["calls.jsonl"]
    assert [each.message.rpartition(": ")[2] for each in found.missing] == [
        "No such file or folder."
    ] * 3
    assert all(each.remedy for each in found.missing)


def test_a_folder_without_logs_says_what_is_looked_for(tmp_path: Path) -> None:
    (only,) = find_logs([str(tmp_path)]).missing
    assert "no log is in this folder" in only.message
    assert "*.jsonl" in only.remedy


def test_what_would_never_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
        found = find_logs([str(path), "/dev/zero"])
    assert not found.files
    assert ["is no file" in each.message for each in found.missing] == [True, True]


def test_a_link_to_nothing_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    found = find_logs([str(tmp_path / "gone.jsonl")])
    assert [each.message for each in found.missing] == [
        f"{tmp_path}/gone.jsonl: No such file or directory."
    ]
    assert find_logs([str(tmp_path)]).files == []
