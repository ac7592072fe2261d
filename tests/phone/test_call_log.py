from __future__ import annotations

import io
import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from qwen3tts_phone.records.log import MAX_LINE_BYTES, CallRecordLog, read_records
from qwen3tts_phone.records.record import CallRecord
from qwen3tts_phone.settings.records import RecordSettings
from tests.phone.facts import call_facts

DAY_S = 86_400


def of(call_id: str) -> CallRecord:
    return CallRecord.of(call_facts(call_id=call_id))


def ids(path: Path) -> list[str]:
    return [record.id for record in read_records(path)]


def test_calls_are_appended_and_only_the_owner_may_read_them(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_text("")
    path.chmod(0o644)
    with CallRecordLog(path) as log:
        log.append(of("one"))
    with CallRecordLog(path) as log:
        log.append(of("two"))
    assert ids(path) == ["one", "two"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def _write(path: str, name: str, count: int, most: int) -> None:
    with CallRecordLog(path, RecordSettings(log_max_bytes=most, log_files=1000)) as log:
        for number in range(count):
            log.append(of(f"{name}-{number}"))
        assert log.lost == 0


def test_processes_that_share_a_log_never_mix_or_lose_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    spawn = multiprocessing.get_context("spawn")
    # About 8 lines a file: they are put aside while others write.
    writers = [spawn.Process(target=_write, args=(str(path), str(n), 60, 10_000)) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    found = []
    for each in sorted(tmp_path.iterdir()):
        reader = read_records(each)
        found += [record.id for record in reader]
        assert reader.damaged == 0
    assert sorted(found) == sorted(f"{n}-{k}" for n in range(3) for k in range(60))
    assert len(list(tmp_path.iterdir())) > 10


def test_a_log_that_is_large_is_put_aside_and_the_oldest_go(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    with CallRecordLog(path, RecordSettings(log_max_bytes=1, log_files=2)) as log:
        for number in range(5):
            log.append(of(str(number)))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["calls.jsonl.1", "calls.jsonl.2"]
    assert ids(tmp_path / "calls.jsonl.1") == ["4"]
    assert ids(tmp_path / "calls.jsonl.2") == ["3"]


def test_nothing_is_kept_aside_where_none_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    with CallRecordLog(path, RecordSettings(log_max_bytes=1, log_files=0)) as log:
        log.append(of("one"))
        assert not path.exists()
        log.append(of("two"))
        assert log.written == 2


def test_what_was_put_aside_goes_when_it_is_too_old(tmp_path: Path) -> None:
    path = tmp_path / "calls[1].jsonl"
    settings = RecordSettings(log_max_bytes=1, log_keep_days=30)
    with CallRecordLog(path, settings) as log:
        log.append(of("old"))
        log.append(of("new"))
        os.utime(tmp_path / "calls[1].jsonl.2", (0, 1000))
        os.utime(tmp_path / "calls[1].jsonl.1", (0, 20 * DAY_S))
        (tmp_path / "calls[1].jsonl.notes").touch()
        assert log.sweep(40 * DAY_S) == [tmp_path / "calls[1].jsonl.2"]
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "calls[1].jsonl.1",
        "calls[1].jsonl.notes",
    ]


def test_a_line_that_a_killed_process_left_open_is_ended_first(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_text('{"record":1,"id":"ha')
    with CallRecordLog(path) as log:
        log.append(of("whole"))
    reader = read_records(path)
    assert [record.id for record in reader] == ["whole"]
    assert (reader.lines, reader.damaged) == (2, 1)


def test_a_log_whose_file_was_moved_away_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    with CallRecordLog(path) as log:
        log.append(of("one"))
        path.rename(tmp_path / "moved")
        log.append(of("two"))
    assert ids(path) == ["two"]


def test_a_full_disk_is_told_once_and_ends_no_call(caplog: pytest.LogCaptureFixture) -> None:
    with CallRecordLog("/dev/full") as log:
        log.append(of("one"))
        log.append(of("two"))
        assert (log.written, log.lost) == (0, 2)
    assert len(caplog.records) == 1
    assert "No space" in caplog.text


def test_a_folder_that_is_not_there_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        CallRecordLog(tmp_path / "missing" / "calls.jsonl")


def test_a_closed_log_loses_what_comes_and_says_so(tmp_path: Path) -> None:
    log = CallRecordLog(tmp_path / "calls.jsonl")
    log.close()
    log.close()
    log.append(of("one"))
    assert log.lost == 1


def test_reading_names_the_damaged_lines(tmp_path: Path) -> None:
    good = of("good").to_json().encode()
    long = b"x" * (MAX_LINE_BYTES + 10)
    reader = read_records(io.BytesIO(b"\n".join([good, b"no", long, good, b""])))
    assert [record.id for record in reader] == ["good", "good"]
    assert reader.damaged == 2
    assert [line for line, _ in reader.examples] == [2, 3]
