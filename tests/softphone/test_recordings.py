from __future__ import annotations

import stat
import wave
from pathlib import Path

import pytest

from qwen3tts_phone.softphone import recordings as module
from qwen3tts_phone.softphone.recordings import NoSuchRecording, RecordingStore


def write(path: Path, frames: int = 8000) -> None:
    with wave.open(str(path), "wb") as file:
        file.setparams((2, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(4 * frames))


def test_a_private_folder_is_its_owners_alone_and_gone_in_the_end() -> None:
    recorded = RecordingStore(None)
    assert stat.S_IMODE(recorded.folder.stat().st_mode) == 0o700
    name, path = recorded.new()
    write(path)
    assert recorded.done(name, path) == 1.0
    assert recorded.path(name) == path
    recorded.close()
    assert not recorded.folder.exists()


def test_a_folder_of_the_users_keeps_its_recordings(tmp_path: Path) -> None:
    recorded = RecordingStore(tmp_path)
    name, path = recorded.new()
    write(path)
    recorded.done(name, path)
    recorded.close()
    assert path.parent == tmp_path
    assert path.exists()
    with pytest.raises(FileNotFoundError):
        RecordingStore(tmp_path / "missing")


def test_only_what_is_done_can_be_fetched(tmp_path: Path) -> None:
    recorded = RecordingStore(tmp_path)
    name, path = recorded.new()
    for wrong in (name, "", "../../etc/passwd", path.name):
        with pytest.raises(NoSuchRecording):
            recorded.path(wrong)
    path.write_bytes(b"RIFF")
    with pytest.raises(OSError, match="no complete recording"):
        recorded.done(name, path)
    write(path)
    recorded.done(name, path)
    path.unlink()
    with pytest.raises(NoSuchRecording):
        recorded.path(name)


def test_the_oldest_of_a_private_folder_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OFFERED", 3)
    recorded = RecordingStore(None)
    made = [recorded.new() for _ in range(5)]
    for name, path in made:
        write(path, 10)
        recorded.done(name, path)
    assert [path.exists() for _, path in made] == [False, False, True, True, True]
    recorded.close()
