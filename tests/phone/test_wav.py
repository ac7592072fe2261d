from __future__ import annotations

import stat
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from qwen3tts_codecs.wav import wav_header
from qwen3tts_phone.audio.wav import StereoRecorder, Track, recording_path


def frame(value: int, samples: int = 160) -> NDArray[np.int16]:
    return np.full(samples, value, np.int16)


def recorded(path: Path) -> NDArray[np.int16]:
    """Samples of shape [n, 2]: caller, agent."""
    with wave.open(str(path)) as wav:
        assert (wav.getnchannels(), wav.getsampwidth(), wav.getframerate()) == (2, 2, 8000)
        return np.frombuffer(wav.readframes(wav.getnframes()), "<i2").reshape(-1, 2)


def test_the_caller_is_left_and_the_agent_right_and_gaps_are_silent(tmp_path: Path) -> None:
    with StereoRecorder(tmp_path / "f.wav") as recorder:
        recorder.caller(frame(1), 0)
        recorder.agent(frame(2), 160)
        recorder.caller(frame(3), 480)
    heard = recorded(tmp_path / "f.wav")
    assert heard[::160].tolist() == [[1, 0], [0, 2], [0, 0], [3, 0]]
    assert len(heard) == 640


def test_only_the_owner_may_read_a_recording_also_where_a_file_was_there(tmp_path: Path) -> None:
    path = tmp_path / "f.wav"
    path.write_bytes(b"x" * 5000)
    path.chmod(0o644)
    StereoRecorder(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(recorded(path)) == 0


def test_a_long_silence_is_recorded_as_long_as_it_was(tmp_path: Path) -> None:
    with StereoRecorder(tmp_path / "f.wav") as recorder:
        recorder.agent(frame(1), 0)
        recorder.agent(frame(2), 3600 * 8000)
    heard = recorded(tmp_path / "f.wav")
    assert len(heard) == 3600 * 8000 + 160
    assert np.count_nonzero(heard) == 320


def test_what_comes_too_late_for_the_window_is_counted(tmp_path: Path) -> None:
    with StereoRecorder(tmp_path / "f.wav", window_s=1.0) as recorder:
        recorder.agent(frame(1), 80_000)
        recorder.caller(frame(2), 0)
        recorder.caller(frame(3), -80)
        assert recorder.late_samples == 320
    assert not recorded(tmp_path / "f.wav")[:, 0].any()


def test_a_recording_ends_at_its_bound_and_says_so(tmp_path: Path) -> None:
    with StereoRecorder(tmp_path / "f.wav", max_seconds=0.03) as recorder:
        recorder.agent(frame(1), 0)
        recorder.agent(frame(2), 160)
        recorder.agent(frame(3), 10**15)
        assert recorder.truncated
    assert recorded(tmp_path / "f.wav")[:, 1].tolist() == [1] * 160 + [2] * 80


def test_the_end_of_the_call_is_the_end_of_the_recording(tmp_path: Path) -> None:
    recorder = StereoRecorder(tmp_path / "f.wav")
    recorder.agent(frame(1), 0)
    recorder.close(end=8000)
    recorder.close()
    assert len(recorded(tmp_path / "f.wav")) == 8000


pieces = st.lists(
    st.tuples(st.sampled_from(list(Track)), st.integers(0, 3000), st.integers(1, 400)), max_size=40
)


@settings(max_examples=60)
@given(pieces=pieces, save_s=st.sampled_from([0.001, 0.05, 10.0]))
def test_within_the_window_the_order_of_writing_does_not_matter(
    tmp_path_factory: pytest.TempPathFactory,
    pieces: list[tuple[Track, int, int]],
    save_s: float,
) -> None:
    path = tmp_path_factory.mktemp("r") / "f.wav"
    expected = np.zeros((4000, 2), np.int16)
    with StereoRecorder(path, window_s=0.5, save_s=save_s) as recorder:
        for number, (track, position, samples) in enumerate(pieces, start=1):
            recorder.write(track, frame(number, samples), position)
            expected[position : position + samples, track] = number
    heard = recorded(path)
    end = max((position + samples for _, position, samples in pieces), default=0)
    assert len(heard) == end
    assert (heard == expected[:end]).all()


def test_the_window_moves_on_without_losing_a_sample(tmp_path: Path) -> None:
    with StereoRecorder(tmp_path / "f.wav", window_s=0.1) as recorder:
        for number in range(500):
            recorder.agent(frame(number), number * 160)
            if number:
                recorder.caller(frame(number), (number - 1) * 160)
    heard = recorded(tmp_path / "f.wav")[::160]
    assert heard[:, 1].tolist() == list(range(500))
    assert heard[:, 0].tolist() == [*range(1, 500), 0]


def test_a_killed_process_leaves_a_file_that_plays(tmp_path: Path) -> None:
    path = tmp_path / "f.wav"
    code = (
        "import os, sys, numpy as np\n"
        "from qwen3tts_phone.audio.wav import StereoRecorder\n"
        "recorder = StereoRecorder(sys.argv[1])\n"
        "for number in range(100):\n"
        "    recorder.agent(np.full(160, 7, np.int16), number * 160)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], env={"PYTHONPATH": ":".join(sys.path)}, check=False
    )
    assert done.returncode == -9
    heard = recorded(path)
    assert 16_000 - 4_000 <= len(heard) <= 16_000
    assert (heard[:, 1] == 7).all()


def test_a_recording_needs_a_regular_file() -> None:
    with pytest.raises(OSError, match="not a regular file"):
        StereoRecorder("/dev/null")


def test_a_failing_disk_ends_the_recording_not_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = StereoRecorder(tmp_path / "f.wav", save_s=0.02)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    recorder.agent(frame(1), 0)
    recorder.agent(frame(2), 160)
    recorder.close()
    assert recorder.error is not None
    assert len(caplog.records) == 1


def test_calls_after_the_first_get_a_number() -> None:
    assert [recording_path(Path("a/f.wav"), n).name for n in (1, 2, 3)] == [
        "f.wav",
        "f-2.wav",
        "f-3.wav",
    ]


def test_the_header_is_what_wave_writes(tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "w.wav"), "wb") as wav:
        wav.setnchannels(1)
        wav.setsampwidth(2)
        wav.setframerate(24_000)
        wav.writeframes(bytes(100))
    assert wav_header(100, 24_000, 1) == (tmp_path / "w.wav").read_bytes()[:44]
