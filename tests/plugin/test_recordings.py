"""Recordings of voices, from files, and everything that is none."""

from __future__ import annotations

import hashlib
import io
import os
import wave
from pathlib import Path

import numpy as np
import pytest

from mr_qwen3tts.voices import recordings
from mr_qwen3tts.voices.recordings import Access, RecordingError, fitting, is_recording, read, stamp

RIFF = b"RIFF....WAVE"
ANY = Access()


def wav(seconds: float, rate: int = 24_000, channels: int = 1, width: int = 2) -> bytes:
    """A tone of 200 Hz at half of full scale."""
    tone = np.sin(2 * np.pi * 200 * np.arange(int(seconds * rate)) / rate) / 2
    if width == 1:
        data = (tone * 127 + 128).astype(np.uint8).repeat(channels).tobytes()
    else:
        whole = (tone * (2 ** (8 * width - 1) - 1)).astype("<i4").repeat(channels)
        data = whole.reshape(-1, 1).view(np.uint8)[:, :width].tobytes()
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((channels, width, rate, 0, "NONE", ""))
        out.writeframes(data)
    return file.getvalue()


# --- names


@pytest.mark.parametrize(
    "name", ["/a.wav", "http://h/a", "HTTPS://h/a", "file:///a.wav", "~/a.wav", "/voice/anna"]
)
def test_paths_and_addresses_are_recordings(name: str) -> None:
    assert is_recording(name)


@pytest.mark.parametrize("name", ["Vivian", "clone:Anna", "a.wav", "ftp://h/a", "en-us+f3", ""])
def test_names_are_none(name: str) -> None:
    assert not is_recording(name)


# --- files


def test_a_file_is_read_with_the_words_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "anna.wav"
    path.write_bytes(RIFF)
    (tmp_path / "anna.txt").write_text(" Hello, this is Anna.\n")
    recording = read(str(path), ANY)
    assert recording.data == RIFF
    assert recording.content == hashlib.sha256(RIFF).hexdigest()
    assert recording.words == "Hello, this is Anna."
    assert recording.stamp == stamp(str(path), ANY)
    assert read(f"file://{path}", ANY).data == RIFF


def test_a_file_that_changes_has_another_stamp(tmp_path: Path) -> None:
    path = tmp_path / "anna.wav"
    path.write_bytes(RIFF)
    before = stamp(str(path), ANY)
    path.write_bytes(RIFF + b"more")
    assert stamp(str(path), ANY) != before
    path.unlink()
    assert stamp(str(path), ANY) is None
    assert stamp("http://host/a.wav", ANY) is None


def test_a_file_is_read_only_from_the_folders_for_recordings(tmp_path: Path) -> None:
    mine, other = tmp_path / "personas", tmp_path / "personas-of-others"
    mine.mkdir()
    other.mkdir()
    (mine / "anna.wav").write_bytes(RIFF + b"anna")
    (other / "bob.wav").write_bytes(RIFF + b"bob")
    (other / "secret.txt").write_text("hunter2")
    (mine / "bob.wav").symlink_to(other / "bob.wav")
    (mine / "folder").symlink_to(other)
    (mine / "anna.txt").symlink_to(other / "secret.txt")
    (other / "anna.wav").symlink_to(mine / "anna.wav")
    access = Access((str(mine),))
    found = read(str(mine / "anna.wav"), access)
    assert (found.data, found.words) == (RIFF + b"anna", None)
    assert read(str(other / "anna.wav"), access).data == RIFF + b"anna"
    assert stamp(str(mine / "anna.wav"), access) == found.stamp
    for where in (
        other / "bob.wav",
        mine / "bob.wav",
        mine / "folder" / "bob.wav",
        mine / ".." / other.name / "bob.wav",
    ):
        assert stamp(str(where), access) is None
        with pytest.raises(RecordingError, match=r"none of the folders.*RECORDINGS_DIR"):
            read(str(where), access)
        assert read(str(where), Access((str(mine), str(other)))).data == RIFF + b"bob"


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("passwd", b"root:x:0:0:root:/root:/bin/sh\n", "no sound file"),
        ("empty.wav", b"", "empty"),
        ("long.wav", b"RIFF" + bytes(recordings.MAX_BYTES), "more than"),
    ],
)
def test_what_is_no_recording_is_not_handed_on(
    name: str, data: bytes, why: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(RecordingError, match=why) as raised:
        read(str(tmp_path / name), ANY)
    assert "root" not in str(raised.value).replace(str(tmp_path), "")


def test_what_cannot_be_read_says_so(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.wav")
    for where, why in (
        (tmp_path / "none.wav", "cannot be read"),
        (tmp_path, "cannot be read|no file"),
        (tmp_path / "pipe.wav", "no file"),
        ("/dev/zero", "no file"),
        ("/a\0b.wav", "no path"),
        ("file://host/a.wav", "not an absolute path"),
    ):
        with pytest.raises(RecordingError, match=why):
            read(str(where), ANY)
        assert stamp("/a\0b.wav", ANY) is None


@pytest.mark.parametrize("data", [RIFF, b"fLaC", b"OggS", b"ID3", b"\xff\xfb\x90", b"....ftypM4A "])
def test_every_usual_kind_of_sound_file_is_taken(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(data)
    assert read(str(tmp_path / "a"), ANY).data == data


# --- what fits into a message


def opened(data: bytes) -> tuple[int, int, int, int]:
    with wave.open(io.BytesIO(data)) as file:
        return file.getnchannels(), file.getsampwidth(), file.getframerate(), file.getnframes()


def test_what_fits_is_left_as_it_is() -> None:
    assert fitting(b"anything", 8, cut=False) == b"anything"


@pytest.mark.parametrize(
    ("width", "channels", "rate"), [(2, 2, 48_000), (3, 1, 44_100), (4, 2, 96_000)]
)
def test_a_long_file_becomes_one_channel_of_24_khz(width: int, channels: int, rate: int) -> None:
    short = fitting(wav(4, rate, channels, width), 200_000, cut=False)
    assert opened(short) == (1, 2, 24_000, 96_000)
    samples = np.frombuffer(short[44:], "<i2")
    assert np.abs(samples[2400:-2400]).max() == pytest.approx(16384, rel=0.01)


def test_a_lower_rate_stays() -> None:
    assert opened(fitting(wav(4, 8000, 2, 2), 64_100, cut=False)) == (1, 2, 8000, 32_000)


def test_what_is_longer_still_is_cut_only_where_no_words_go_with_it() -> None:
    assert opened(fitting(wav(4), 96_044, cut=True)) == (1, 2, 24_000, 48_000)
    with pytest.raises(RecordingError, match="lasts 4 s, and 2 s are the most"):
        fitting(wav(4), 96_044, cut=False)


@pytest.mark.parametrize("data", [b"fLaC" + bytes(100), RIFF + bytes(100), wav(1)[:30] + bytes(99)])
def test_what_cannot_be_made_shorter_says_what_would_fit(data: bytes) -> None:
    with pytest.raises(RecordingError, match="a WAV file of 16 bits"):
        fitting(data, 50, cut=True)
