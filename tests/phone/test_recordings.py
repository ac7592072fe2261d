from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_phone.audio.wav import StereoRecorder
from qwen3tts_phone.facts import CallFacts
from qwen3tts_phone.records.recording import EncodingFailed, write_encoded
from qwen3tts_phone.records.store import CallStore, RecordingFolder
from qwen3tts_phone.settings.records import RecordSettings
from tests.conftest import require_package
from tests.fakes import FakeClock
from tests.phone.facts import call_facts

DAY_S = 86_400.0
NOW = 1_800_000_000.0


def settings(folder: Path, **changes: Any) -> RecordSettings:
    return RecordSettings(audio=folder, **changes)


def sine(hz: float, seconds: float, rate_hz: int = 8000) -> NDArray[np.int16]:
    at = np.arange(round(seconds * rate_hz)) / rate_hz
    samples: NDArray[np.int16] = np.rint(8000 * np.sin(2 * np.pi * hz * at)).astype(np.int16)
    return samples


def record(path: Path, seconds: float = 2.0, rate_hz: int = 8000) -> None:
    """The caller's tone in the first half, the agent's in the second."""
    half = round(seconds / 2 * rate_hz)
    with StereoRecorder(path, rate_hz=rate_hz) as recorder:
        recorder.caller(sine(500, seconds / 2, rate_hz), 0)
        recorder.agent(sine(1200, seconds / 2, rate_hz), half)


def decoded(path: Path) -> tuple[NDArray[np.float64], int]:
    """Both tracks, shape [n, 2], and their rate."""
    av = require_package("av", "pip install 'mr_qwen3tts[phone]'")
    with av.open(str(path)) as container:
        stream = container.streams.audio[0]
        frames = [frame.to_ndarray() for frame in container.decode(stream)]
        assert stream.codec_context.name in ("opus", "libopus")
        return np.concatenate(frames, axis=1).T.astype(np.float64), stream.codec_context.sample_rate


def strength(samples: NDArray[np.float64], hz: float, rate_hz: int) -> float:
    at = np.arange(len(samples)) / rate_hz
    return float(np.abs(np.mean(samples * np.exp(-2j * np.pi * hz * at))))


def test_the_folder_is_for_its_owner_only_and_names_hold_no_number(tmp_path: Path) -> None:
    recordings = RecordingFolder(settings(tmp_path / "sound" / "calls"))
    path = recordings.path_for(call_facts(direction="in"))
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.name.startswith("20270115-080000-in-")
    assert path.suffix == ".wav"
    assert "5550100" not in path.name


def test_a_number_is_in_the_name_where_it_is_asked_for_and_is_harmless(tmp_path: Path) -> None:
    recordings = RecordingFolder(settings(tmp_path, name_with_party=True))
    assert "-+15550100.wav" in recordings.path_for(call_facts()).name
    wild = call_facts(call_id="x", remote_uri='"a" <sip:../../etc/pass wd%00@h>;x')
    path = recordings.path_for(wild)
    assert path.parent == tmp_path
    assert path.name.endswith("-etcpasswd00.wav")


def test_two_calls_of_one_name_get_two_files(tmp_path: Path) -> None:
    recordings = RecordingFolder(settings(tmp_path))
    first, second = (recordings.path_for(call_facts()) for _ in range(2))
    assert first != second
    record(first)
    assert asyncio.run(recordings.finished(first)) == (first,)
    assert recordings.path_for(call_facts()) not in (first, second)


def test_others_who_may_see_the_folder_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(0o755)
    RecordingFolder(settings(tmp_path))
    assert "chmod 700" in caplog.text


def test_a_phone_without_a_folder_has_no_recordings() -> None:
    with pytest.raises(ValueError, match="audio"):
        RecordingFolder(RecordSettings())


@pytest.mark.parametrize("rate_hz", [8000, 16_000, 24_000, 44_100])
def test_an_encoded_file_has_both_tracks_at_their_time(tmp_path: Path, rate_hz: int) -> None:
    source, target = tmp_path / "f.wav", tmp_path / "f.opus"
    record(source, rate_hz=rate_hz)
    write_encoded(source, target, bitrate=48_000)
    sound, rate = decoded(target)
    assert abs(len(sound) / rate - 2.0) < 0.05
    half = len(sound) // 2
    early, late = sound[: half - rate // 20], sound[half + rate // 20 :]
    for part, own, other, hz in ((early, 0, 1, 500.0), (late, 1, 0, 1200.0)):
        mine, others = (strength(part[:, track], hz, rate) for track in (own, other))
        assert mine > 20 * others
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert target.stat().st_size < source.stat().st_size / 2
    assert not (tmp_path / "f.opus.part").exists()


def test_an_empty_recording_becomes_an_empty_encoded_file_or_a_typed_error(tmp_path: Path) -> None:
    StereoRecorder(tmp_path / "f.wav").close()
    write_encoded(tmp_path / "f.wav", tmp_path / "f.opus")
    assert (tmp_path / "f.opus").exists()


@pytest.mark.parametrize("content", [b"", b"RIFF", b"RIFF\x00\x00\x00\x00WAVEfmt ", b"x" * 100])
def test_what_is_no_wav_file_is_refused_and_nothing_is_left(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f.wav").write_bytes(content)
    with pytest.raises(EncodingFailed, match=r"f\.wav"):
        write_encoded(tmp_path / "f.wav", tmp_path / "f.opus")
    assert [each.name for each in tmp_path.iterdir()] == ["f.wav"]


def test_a_link_in_the_place_of_the_new_file_is_not_followed(tmp_path: Path) -> None:
    record(tmp_path / "f.wav")
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "f.opus.part").symlink_to("victim")
    write_encoded(tmp_path / "f.wav", tmp_path / "f.opus")
    assert (tmp_path / "victim").read_text() == "precious"


FULL = """
import resource, sys
from pathlib import Path
from qwen3tts_phone.records.recording import EncodingFailed, write_encoded
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    write_encoded(Path(sys.argv[1]), Path(sys.argv[2]))
except EncodingFailed as error:
    print(error)
"""


def test_a_disk_that_is_full_leaves_the_wav_and_no_half_file(tmp_path: Path) -> None:
    record(tmp_path / "f.wav", seconds=20.0)
    line = [sys.executable, "-c", FULL, str(tmp_path / "f.wav"), str(tmp_path / "f.opus")]
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    said = subprocess.run(line, capture_output=True, text=True, env=paths, check=True)
    assert "could not be made" in said.stdout
    assert [each.name for each in tmp_path.iterdir()] == ["f.wav"]


def finish(recordings: RecordingFolder, facts: CallFacts) -> tuple[Path, ...]:
    path = recordings.path_for(facts)
    record(path)
    return asyncio.run(recordings.finished(path))


def test_each_format_leaves_its_files(tmp_path: Path) -> None:
    for audio_format, suffixes in (
        ("wav", [".wav"]),
        ("opus", [".opus"]),
        ("both", [".wav", ".opus"]),
    ):
        folder = tmp_path / audio_format
        files = finish(RecordingFolder(settings(folder, audio_format=audio_format)), call_facts())
        assert [each.suffix for each in files] == suffixes
        assert sorted(files) == sorted(folder.iterdir())


def test_encoding_does_not_run_where_calls_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def note(source: Path, target: Path, **_: object) -> None:
        seen.append(threading.get_ident())
        target.touch()

    monkeypatch.setattr("qwen3tts_phone.records.store.write_encoded", note)
    finish(RecordingFolder(settings(tmp_path, audio_format="both")), call_facts())
    assert seen != [threading.get_ident()]


def test_without_pyav_the_wav_stays_and_the_log_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    files = finish(RecordingFolder(settings(tmp_path, audio_format="opus")), call_facts())
    assert [each.suffix for each in files] == [".wav"]
    assert "pip install" in caplog.text


async def test_the_single_recording_is_encoded_as_its_ending_says(tmp_path: Path) -> None:
    files = CallStore(RecordSettings(), tmp_path / "call.MP3", FakeClock())
    made: list[Path] = []
    for _ in range(2):
        path = files.path_for(call_facts())
        assert path is not None
        record(path)
        facts = call_facts()
        await files.file(facts, path)
        made += facts.recording
    await files.close()
    assert [each.name for each in made] == ["call.MP3", "call-2.MP3"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["call-2.MP3", "call.MP3"]


async def test_a_single_recording_that_cannot_be_encoded_stays_a_wav(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    files = CallStore(RecordSettings(), tmp_path / "call.flac", FakeClock())
    path = files.path_for(call_facts())
    assert path is not None
    record(path)
    facts = call_facts()
    await files.file(facts, path)
    assert facts.recording == (tmp_path / "call.flac.wav",)
    assert "pip install" in caplog.text


def aged(path: Path, days: float, size: int = 100) -> Path:
    path.write_bytes(bytes(size))
    os.utime(path, (NOW - days * DAY_S, NOW - days * DAY_S))
    return path


def test_recordings_that_are_too_old_are_deleted_and_nothing_else(tmp_path: Path) -> None:
    recordings = RecordingFolder(settings(tmp_path, audio_keep_days=30))
    old = aged(tmp_path / "20260101-080000-in-0123abcd.wav", 31)
    new = aged(tmp_path / "20260102-080000-in-0123abcd-5550100.opus", 29)
    others = [aged(tmp_path / name, 400) for name in ("notes.txt", "mine.wav", "2026.wav")]
    assert recordings.sweep(NOW) == [old]
    assert sorted(tmp_path.iterdir()) == sorted([new, *others])


def test_the_oldest_go_while_all_are_too_large(tmp_path: Path) -> None:
    recordings = RecordingFolder(settings(tmp_path, audio_max_bytes=250))
    files = [aged(tmp_path / f"20260101-08000{n}-in-0123abcd.wav", 9 - n) for n in range(4)]
    assert recordings.sweep(NOW) == files[:2]
    assert recordings.sweep(NOW) == []


def test_a_call_under_way_keeps_its_recording(tmp_path: Path) -> None:
    recordings = RecordingFolder(settings(tmp_path, audio_keep_days=1, audio_format="opus"))
    path = recordings.path_for(call_facts())
    record(path)
    os.utime(path, (0, 0))
    assert recordings.sweep(NOW) == []
    assert path.exists()


def test_what_a_killed_process_left_is_finished_later(tmp_path: Path) -> None:
    left = tmp_path / "20260101-080000-in-0123abcd.wav"
    record(left)
    os.utime(left, (NOW - 30, NOW - 30))
    recordings = RecordingFolder(settings(tmp_path, audio_format="opus", audio_keep_days=30))
    recordings.sweep(NOW)
    assert left.exists()  # it may still be written to
    os.utime(left, (NOW - 3600, NOW - 3600))
    part = aged(tmp_path / "20260101-080000-in-0123abcd.opus.part", 2)
    assert recordings.sweep(NOW) == []
    assert [each.name for each in tmp_path.iterdir()] == [left.with_suffix(".opus").name]
    assert not part.exists()


def test_the_age_of_an_encoded_file_is_the_calls(tmp_path: Path) -> None:
    left = tmp_path / "20260101-080000-in-0123abcd.wav"
    record(left)
    os.utime(left, (NOW - 40 * DAY_S, NOW - 40 * DAY_S))
    recordings = RecordingFolder(settings(tmp_path, audio_format="opus", audio_keep_days=30))
    assert recordings.sweep(NOW) == [left.with_suffix(".opus")]
    assert list(tmp_path.iterdir()) == []
