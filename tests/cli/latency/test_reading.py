"""Names of logs, and their reading into columns."""

from __future__ import annotations

import gzip
import io
import os
import socket
import threading
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_cli.latency.choices import LogKind
from qwen3tts_cli.latency.columns import Columns, NameColumn, columns_of
from qwen3tts_cli.latency.findings import LogChanged
from qwen3tts_cli.latency.reading import LogFile, ReadFilter, ResolvedLogs, find_logs, read_columns
from qwen3tts_cli.latency.selection import Selection
from qwen3tts_speech.e2e_lines import E2eWriter
from qwen3tts_speech.latency import MAX_LINE_BYTES
from tests.cli.latency.synthetic import Made, made_log, made_records


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


MADE = Made(utterances=30, calls=3, text="a word")


def read(*paths: Path, selection: Selection | None = None) -> Columns:
    return read_columns(map(LogFile, paths), ReadFilter(selection or Selection()))


def contexts(columns: Columns) -> list[str]:
    return [record.context for record in columns.records()]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return made_log(tmp_path / "calls.jsonl", MADE)


def test_every_utterance_is_a_row_and_can_be_read_again(log: Path) -> None:
    columns = read(log)
    assert len(columns) == 30
    assert columns.source.counts() == {str(log): 30}
    for row, record in enumerate(made_records(MADE)):
        again = columns.record_at(row)
        assert again.context == record.context
        assert again.text == "a word"
        assert again.marks == pytest.approx(record.marks, abs=2e-6)
    assert columns.findings.sentences() == []
    assert columns.findings.lines == 30


def test_several_logs_are_one_set_in_the_order_given(log: Path, tmp_path: Path) -> None:
    other = made_log(tmp_path / "other.jsonl", Made(utterances=5, seed=1))
    columns = read(other, log)
    assert columns.source.counts() == {str(log): 30, str(other): 5}
    assert contexts(columns)[:6] == ["0", "1", "2", "3", "4", "0"]


def test_a_compressed_log_is_read_and_read_again(log: Path, tmp_path: Path) -> None:
    packed = tmp_path / "calls.jsonl.gz"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    assert contexts(read(packed)) == contexts(read(log))


def test_a_compressed_log_that_ends_early_is_read_as_far_as_it_goes(
    log: Path, tmp_path: Path
) -> None:
    packed = tmp_path / "calls.jsonl.gz"
    packed.write_bytes(gzip.compress(os.urandom(30_000).hex().encode() + b"\n" + log.read_bytes()))
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(packed.read_bytes()[:-200])
    columns = read(cut)
    assert 0 < len(columns) < 30
    assert "is cut short or damaged" in columns.findings.remarks[0]


def test_compressed_nonsense_is_told_of(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl.gz"
    path.write_bytes(b"\x1f\x8b\x08\x00" + os.urandom(100))
    columns = read(path)
    assert len(columns) == 0
    assert any("cut short or damaged" in each for each in columns.findings.sentences())


def test_standard_input_can_be_read_again_too(log: Path) -> None:
    piped = LogFile(Path("-"), stream=io.BytesIO(log.read_bytes()))
    columns = read_columns([piped])
    assert contexts(columns) == contexts(read(log))
    assert columns.source.names == ("standard input",)


def test_a_pipe_with_a_name_is_read(log: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(log.read_bytes()))
    writer.start()
    columns = read(pipe)
    writer.join()
    assert contexts(columns) == contexts(read(log))


def test_a_copy_of_a_log_counts_once(log: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(log.read_bytes())
    made_log(copy, Made(utterances=2, seed=9))
    columns = read(log, copy)
    assert len(columns) == 32
    assert columns.findings.repeated == 30
    assert "30 lines stand in more than one log; counted once." in columns.findings.sentences()


def test_half_lines_are_left_out_and_named(log: Path) -> None:
    whole = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(whole[:3]) + whole[3][:50] + b"\n" + b"".join(whole[4:])[:-20])
    columns = read(log)
    assert len(columns) == 28
    assert columns.findings.damaged == 2
    assert [(each.line, each.why[:8]) for each in columns.findings.examples] == [
        (4, "not JSON"),
        (30, "not JSON"),
    ]
    assert "2 of 30 lines are no utterances; left out." in columns.findings.sentences()


def test_rows_after_a_line_without_end_are_found_again(log: Path) -> None:
    whole = log.read_bytes()
    log.write_bytes(b"x" * (2 * MAX_LINE_BYTES + 5) + b"\n\n" + whole)
    columns = read(log)
    assert contexts(columns) == [str(number) for number in range(30)]
    assert "longer than" in columns.findings.examples[0].why


def test_a_newer_version_is_read_as_far_as_it_is_known_and_told_of(log: Path) -> None:
    newer = log.read_bytes().replace(b'"v":1', b'"v":7,"mood":"good"', 12)
    log.write_bytes(newer.replace(b'"marks_ms":{', b'"marks_ms":{"lunch":5,', 12))
    columns = read(log)
    assert len(columns) == 30
    assert "lunch" not in columns.mark_ms
    assert columns.findings.newer == 12
    assert any(
        "12 utterances were written by a newer version" in each
        for each in columns.findings.sentences()
    )


def test_an_old_log_without_the_later_fields_is_read(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    path.write_text('{"v":1,"context_id":"1","marks_ms":{"text_in":0,"first_delta":4}}\n')
    columns = read(path)
    assert (columns.line.of(0), columns.codec.of(0), columns.findings.newer) == ("", "", 0)
    assert columns.mark_ms["first_delta"][0] == 4


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty."),
        (b"\n\n", "holds no utterance in 2 lines."),
        (b"hello\nworld\n", "holds no utterance in 2 lines."),
        (bytes(range(256)) * 40, "holds no utterance: it is no text."),
    ],
)
def test_a_file_without_utterances_is_told_of(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_bytes(content)
    columns = read(path)
    assert len(columns) == 0
    assert columns.findings.remarks == [f"{path} {told}"]


def test_only_what_the_filters_take_is_kept(log: Path) -> None:
    wanted = ReadFilter(Selection({"call": ("call-0001",)}))
    columns = read_columns([LogFile(log)], wanted)
    assert columns.call.counts() == {"call-0001": 10}
    assert contexts(columns) == [str(number) for number in range(10, 20)]
    assert wanted.seen == 30


@pytest.mark.parametrize(
    ("name", "row"), [("17", 17), ("call-0001/17", 17), ("call-0001", 10), ("nobody", None)]
)
def test_an_utterance_is_found_by_what_it_is_called(log: Path, name: str, row: int | None) -> None:
    wanted = ReadFilter(Selection(), chosen=name)
    read_columns([LogFile(log)], wanted)
    assert wanted.found == row


def test_a_log_that_is_cut_off_after_reading_is_told_of(log: Path) -> None:
    columns = read(log)
    log.write_bytes(b"")
    with pytest.raises(LogChanged):
        columns.record_at(5)


def test_a_log_whose_place_another_has_taken_is_told_of(log: Path) -> None:
    columns = read(log)
    log.unlink()
    made_log(log, Made(utterances=30, began_unix_s=5.0))
    with pytest.raises(LogChanged):
        columns.record_at(0)


def test_mr_sips_lines_are_known_by_themselves(tmp_path: Path) -> None:
    path = tmp_path / "sip_e2e_latency.log"
    with path.open("w") as file:
        writer = E2eWriter(file)
        for record in made_records(MADE):
            writer.append(record)
    columns = read(path)
    assert len(columns) == writer.written > 20
    assert set(columns.call.names) == {f"call-{number:04}" for number in range(3)}
    assert [record.call_id for record in columns.records()] == [
        columns.call.of(row) for row in range(len(columns))
    ]


def test_what_the_lines_are_can_be_said(log: Path) -> None:
    columns = read_columns([LogFile(log)], kind=LogKind.MR_SIP)
    assert len(columns) == 0
    assert columns.findings.damaged == 30


def test_how_far_it_is_is_told_now_and_then(tmp_path: Path) -> None:
    log = made_log(tmp_path / "calls.jsonl", Made(utterances=12_000))
    told: list[int] = []
    read_columns([LogFile(log)], progress=told.append)
    assert told == [5000, 10_000]


def test_an_utterance_takes_few_bytes() -> None:
    """The columns alone; time and the whole process are the benchmark's."""
    columns = columns_of(made_records(Made(utterances=1000)))
    arrays: list[NDArray[np.generic]] = [*columns.mark_ms.values()]
    for value in vars(columns).values():
        arrays += [value] if isinstance(value, np.ndarray) else []
        arrays += [value.codes] if isinstance(value, NameColumn) else []
    assert sum(array.nbytes for array in arrays) / 1000 < 200
