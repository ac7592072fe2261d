"""Files of sound: the ending says the form, and what cannot be written is said before anything."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import av
import numpy as np
import pytest
import typer

from qwen3tts_cli.main import run
from qwen3tts_cli.output.sound import FileSink
from qwen3tts_cli.output.writable import SOUND_ENDINGS, check_sound_file, check_writable, whole_file
from qwen3tts_phone.audio.wav import StereoRecorder
from qwen3tts_phone.records.recording import SUFFIXES, write_encoded
from tests.phone.voices import tone

CODECS = {
    ".wav": "pcm_s16le",
    ".flac": "flac",
    ".mp3": "mp3float",
    ".ogg": "opus",
    ".opus": "opus",
}


def decoded(path: Path) -> tuple[str, int, float]:
    """Codec, tracks, and seconds of a file."""
    with av.open(str(path)) as container:
        stream = container.streams.audio[0]
        samples = sum(frame.samples for frame in container.decode(stream))
        return stream.codec_context.name, stream.channels, samples / stream.rate


@pytest.mark.parametrize("rate_hz", [24_000, 16_000, 8_000])
@pytest.mark.parametrize("ending", [*SOUND_ENDINGS, ".MP3", ".Flac"])
async def test_a_text_is_written_in_the_form_of_the_ending(
    tmp_path: Path, ending: str, rate_hz: int
) -> None:
    path = tmp_path / f"said{ending}"
    sink = FileSink(path, rate_hz)
    pcm = tone(440, rate_hz, 1.5).astype("<i2").tobytes()
    for start in range(0, len(pcm), 2_000):
        await sink.write(pcm[start : start + 2_000])
    await sink.finish()
    codec, tracks, seconds = decoded(path)
    assert (codec.removeprefix("lib"), tracks) == (CODECS[ending.lower()], 1)
    assert seconds == pytest.approx(1.5, abs=0.15)


async def test_a_flac_says_its_length_in_its_header(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "f.flac", 24_000)
    await sink.write(bytes(48_000))
    await sink.finish()
    with av.open(str(tmp_path / "f.flac")) as container:
        assert container.duration == 1_000_000


async def test_without_sound_an_older_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "f.mp3"
    path.write_bytes(b"older")
    await FileSink(path, 24_000).finish()
    assert path.read_bytes() == b"older"


@pytest.mark.parametrize("ending", SUFFIXES[1:])
def test_a_recording_is_encoded_with_both_tracks(tmp_path: Path, ending: str) -> None:
    wav = tmp_path / f"call{ending}.wav"
    with StereoRecorder(wav) as recorder:
        recorder.caller(tone(400, 8_000, 1.0).astype(np.int16), 0)
        recorder.agent(tone(900, 8_000, 1.0).astype(np.int16), 0)
    write_encoded(wav, tmp_path / f"call{ending}")
    codec, tracks, seconds = decoded(tmp_path / f"call{ending}")
    assert (codec.removeprefix("lib"), tracks) == (CODECS[ending], 2)
    assert seconds == pytest.approx(1.0, abs=0.15)


def test_say_and_record_know_the_same_endings() -> None:
    assert set(SOUND_ENDINGS) == set(SUFFIXES)


def refusal(option: str, path: Path) -> str:
    with pytest.raises(typer.BadParameter) as caught:
        check_sound_file(option, path, "server")
    return caught.value.message


def test_what_cannot_be_written_is_said_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder.wav").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "kept.wav").touch()
    missing = tmp_path / "not here" / "f.wav"
    assert f"mkdir -p '{missing.parent}'" in refusal("--out", missing)
    assert "is a folder. Name a file in it." in refusal("--out", tmp_path / "folder.wav")
    assert "is a file, not a folder" in refusal("--out", tmp_path / "file" / "f.wav")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "no permission to write" in refusal("--out", tmp_path / "kept.wav")
    assert "no permission to write into the folder" in refusal("--out", tmp_path / "new.wav")


@pytest.mark.parametrize("name", ["speech", "speech.aiff", "speech.wav.bak", ".wav"])
def test_an_unknown_ending_is_answered_with_the_list(tmp_path: Path, name: str) -> None:
    told = refusal("--record", tmp_path / name)
    assert told.startswith("--record: ")
    assert ".wav, .flac, .mp3, .ogg or .opus" in told


def test_a_device_may_have_any_name() -> None:
    check_sound_file("--out", Path("/dev/null"), "server")
    check_writable("--out", None)


@pytest.mark.parametrize(
    "arguments",
    [
        ("say", "Hello.", "--out"),
        ("call", "sip:bob@127.0.0.1:9", "--say", "Hello.", "--record"),
        ("answer", "--say", "Hello.", "--record"),
    ],
)
def test_it_is_said_before_a_voice_or_a_phone_is_started(
    arguments: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("qwen3tts_cli.output.exits.asyncio.run", None)
    for path in (tmp_path / "missing" / "f.wav", tmp_path / "f.aiff", tmp_path):
        assert run([*arguments, str(path)]) == 2
        told = capsys.readouterr().err
        assert arguments[-1] in told
        assert "Traceback" not in told


@pytest.mark.parametrize("name", ["missing.txt", ""])
def test_a_text_that_cannot_be_read_is_told_before_a_voice_is_started(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("qwen3tts_cli.output.exits.asyncio.run", None)
    path, out = tmp_path / name, tmp_path / "f.wav"
    assert run(["say", "--file", str(path), "--out", str(out)]) == 2
    told = capsys.readouterr().err
    assert f"{path} cannot be read" in told
    assert "Remedy: " in told


def test_a_missing_folder_of_recordings_is_told_with_its_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["softphone", "--recordings", str(tmp_path / "missing")]) == 2
    assert "mkdir -p" in " ".join(capsys.readouterr().err.split())


def test_without_pyav_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    assert run(["say", "Hello.", "--out", str(tmp_path / "f.mp3")]) == 3
    assert "pip install 'mr_qwen3tts[server]'" in capsys.readouterr().err


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
