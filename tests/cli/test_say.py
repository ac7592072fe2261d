from __future__ import annotations

import asyncio
import os
import wave
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_cli.main import run
from qwen3tts_cli.options.speech import SpeechOptions
from qwen3tts_cli.output.exits import CutShort, first_error
from qwen3tts_cli.output.sound import UNKNOWN_BYTES, WavStream, WavWriter
from qwen3tts_cli.say import (
    LONGEST_PASSAGE_CHARS,
    PASSAGE_CHARS,
    Passages,
    SayOptions,
    say_words,
)
from qwen3tts_phone.call.text_sources import from_text
from qwen3tts_server.run import running_server
from qwen3tts_wire.context import Context
from qwen3tts_wire.errors import ConnectionLost, EngineFailed, UnknownVoice
from tests.engine.fake_engine import CHAR_SAMPLES, FakeEngine


async def said(text: str, out: Path, **options: object) -> None:
    """Say ``text`` into ``out`` with the engine of tones."""
    how = SayOptions(
        SpeechOptions(voice=str(options.get("voice", "tone"))),
        rate_hz=int(str(options.get("rate_hz", 24_000))),
    )
    async with running_server(FakeEngine()) as server:
        try:
            await say_words(from_text(text), how, server.url, out, False, len(text))
        except BaseExceptionGroup as group:
            raise first_error(group) from None


def samples_of(path: Path) -> tuple[int, int]:
    """Rate and number of samples."""
    with wave.open(str(path)) as wav:
        return wav.getframerate(), wav.getnframes()


@pytest.mark.network
@pytest.mark.parametrize("rate_hz", [24_000, 8_000])
async def test_a_text_becomes_a_wav_of_its_length(tmp_path: Path, rate_hz: int) -> None:
    text = "Good morning."
    await said(text, tmp_path / "f.wav", rate_hz=rate_hz)
    rate, samples = samples_of(tmp_path / "f.wav")
    assert rate == rate_hz
    assert samples == pytest.approx(len(text) * CHAR_SAMPLES * rate_hz / 24_000, rel=0.1)


@pytest.mark.network
async def test_the_server_does_not_wait_for_ears_where_a_file_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    report = Context.report

    async def watched(context: Context, played: int, state: str = "playing") -> None:
        taken.append(played)
        await report(context, played, state)

    monkeypatch.setattr(Context, "report", watched)
    await said("Good morning to you.", tmp_path / "f.wav")
    assert taken == sorted(set(taken))
    assert samples_of(tmp_path / "f.wav")[1] - taken[-1] < 2_400


@pytest.mark.network
async def test_an_error_before_the_first_sound_leaves_an_older_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "f.wav"
    path.write_bytes(b"older")
    with pytest.raises(UnknownVoice):
        await said("Good morning.", path, voice="nobody")
    with pytest.raises(CutShort, match="the text has nothing speakable"):
        await said("...", path)
    assert path.read_bytes() == b"older"


@pytest.mark.network
async def test_a_file_that_cannot_be_written_is_not_told_to_be_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(FileNotFoundError):
        await said("Good morning.", tmp_path / "nowhere" / "f.wav")
    assert "Hz." not in capsys.readouterr().err


@pytest.mark.network
async def test_what_was_made_before_an_error_is_kept(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed):
        await said("Good morning.", tmp_path / "f.wav", voice="fail-late")
    assert samples_of(tmp_path / "f.wav")[1] > 0


@pytest.mark.network
async def test_a_server_that_is_not_there_is_told() -> None:
    how = SayOptions(SpeechOptions(), 24_000)
    with pytest.raises(ConnectionLost, match="No speech server answers"):
        await say_words(from_text("x"), how, "ws://127.0.0.1:9/v1/speech", None, False, 1)


def test_playing_without_a_player_is_told_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert run(["say", "Hello.", "--play"]) == 3
    assert "Install alsa-utils" in capsys.readouterr().err


async def deltas(pieces: list[str]) -> AsyncIterator[str]:
    for piece in pieces:
        yield piece


async def passages_of(pieces: list[str]) -> list[str]:
    passages, made = Passages(deltas(pieces)), []
    while await passages.more():
        made.append("".join([delta async for delta in passages.passage()]))
    assert passages.chars == sum(map(len, made))
    return made


@given(st.lists(st.text("ab \n", max_size=30) | st.sampled_from(["x" * 30_000, "y\n" * 9_000])))
async def test_passages_joined_are_the_text_and_none_is_too_long(pieces: list[str]) -> None:
    made = await passages_of(pieces)
    assert "".join(made) == "".join(pieces)
    assert all(0 < len(each) <= LONGEST_PASSAGE_CHARS for each in made)


async def test_a_long_text_is_cut_where_a_line_ends() -> None:
    line = "x" * 99 + "\n"
    made = await passages_of([line * 500])
    assert [len(each) for each in made] == [PASSAGE_CHARS + 100, PASSAGE_CHARS + 100, 9_800]
    assert all(each.endswith("\n") for each in made)


def test_a_killed_writer_leaves_a_wav_that_plays(tmp_path: Path) -> None:
    writer = WavWriter(tmp_path / "f.wav", 8000)
    writer.write(bytes(60_000))
    writer.write(bytes(10_000))
    with wave.open(str(tmp_path / "f.wav")) as wav:
        assert wav.getnframes() == 30_000
    writer.close()
    assert samples_of(tmp_path / "f.wav") == (8000, 35_000)


async def test_a_slow_reader_of_the_pipe_holds_up_the_speech_and_loses_nothing() -> None:
    reading, writing = os.pipe()
    pcm = np.arange(100_000, dtype="<i2").tobytes()

    async def speak() -> None:
        await WavStream(writing, 24_000).write(pcm)
        os.close(writing)

    speaking = asyncio.ensure_future(speak())
    got = b""
    try:
        while len(got) < 44 + len(pcm):
            await asyncio.sleep(0)
            got += os.read(reading, 1000) if _readable(reading) else b""
        await speaking
    finally:
        os.close(reading)
    assert got[40:44] == UNKNOWN_BYTES.to_bytes(4, "little")
    assert got[44:] == pcm


def _readable(fd: int) -> bool:
    import select

    return bool(select.select([fd], [], [], 0)[0])
