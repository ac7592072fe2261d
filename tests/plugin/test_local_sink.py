from __future__ import annotations

import asyncio
import stat
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mr_qwen3tts import local_sink
from mr_qwen3tts.local_sink import LocalSink
from qwen3tts_codecs.frames import FrameEncoder
from qwen3tts_codecs.g711 import PCMU
from qwen3tts_codecs.l16 import l16
from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.slot import Frame
from qwen3tts_speech.player import MissingProgram, Player
from tests.fakes import FakeClock, settle

SAMPLES = 480


def frames(context: int, count: int, payload: Payload = PCMU) -> list[Frame]:
    tone = np.full(SAMPLES * count, 8000, np.int16).tobytes()
    encoded = FrameEncoder(24_000, payload).push(tone)
    return [
        Frame(each.payload, each.tail, each.head, context, n * SAMPLES, (n + 1) * SAMPLES)
        for n, each in enumerate(encoded)
    ]


def say(sink: LocalSink, context: int, count: int) -> None:
    sink.begin(context, "voice")
    sink.write(frames(context, count, sink.payload))
    sink.finish(context)


async def written(sink: LocalSink, clock: FakeClock, files: int) -> list[Path]:
    """Time goes on until so many turns are over and in their files."""
    await clock.advance(10.0)
    await until(lambda: len(sink.files) == files)
    return list(sink.files)


async def until(so: Callable[[], bool]) -> None:
    """What a thread does is done."""
    async with asyncio.timeout(30.0):
        while not so():
            await settle()


class Speaker:
    """Notes what it is to play."""

    def __init__(self) -> None:
        self.pcm = b""
        self.ends: list[str] = []
        self.rate_hz = 0
        self.breaks = False

    async def find(self, rate_hz: int) -> Player:
        self.rate_hz = rate_hz
        return self

    async def write(self, pcm: bytes) -> None:
        if self.breaks:
            raise BrokenPipeError("unplugged")
        self.pcm += pcm

    async def finish(self) -> None:
        self.ends.append("finish")

    async def stop(self) -> None:
        self.ends.append("stop")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def problems() -> list[str]:
    return []


@pytest.mark.parametrize("payload", [PCMU, l16(24_000, 96)])
async def test_a_turn_is_written_into_a_file(
    clock: FakeClock, tmp_path: Path, payload: Payload
) -> None:
    sink = LocalSink("wav", str(tmp_path / "new"), name="a/../b", clock=clock, payload=payload)
    say(sink, 1, 25)
    say(sink, 2, 25)
    (path,) = await written(sink, clock, 1)
    assert path.parent == tmp_path / "new"
    assert path.name.startswith("a_.._b-")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with wave.open(str(path)) as sound:
        assert sound.getframerate() == payload.sample_hz
        assert sound.getnchannels() == 1
        # Both utterances and what fades out after them.
        assert sound.getnframes() == payload.sample_hz * 51 // 50
        pcm = np.frombuffer(sound.readframes(sound.getnframes()), np.int16)
    assert abs(int(np.median(pcm)) - 8000) < 200
    await sink.close()


async def test_each_turn_has_its_own_file(clock: FakeClock, tmp_path: Path) -> None:
    sink = LocalSink("wav", str(tmp_path), clock=clock)
    for turn in (1, 2, 3):
        say(sink, turn, 5)
        await written(sink, clock, turn)
    assert len(set(tmp_path.glob("local-*.wav"))) == 3
    await sink.close()


async def test_what_was_said_before_a_stop_is_kept(clock: FakeClock, tmp_path: Path) -> None:
    sink = LocalSink("wav", str(tmp_path), lead_ms=20, clock=clock)
    say(sink, 1, 100)
    await clock.advance(0.11)
    sink.interrupt()
    (path,) = await written(sink, clock, 1)
    with wave.open(str(path)) as sound:
        assert sound.getnframes() == 160 * sink.frames == 160 * 7
    await sink.close()


async def test_sound_is_paced_like_a_call(clock: FakeClock, tmp_path: Path) -> None:
    sink = LocalSink("off", str(tmp_path), lead_ms=60, clock=clock)
    say(sink, 1, 100)
    await clock.advance(1.0)
    assert sink.frames == 54
    await clock.advance(2.0)
    assert (await sink.drained(1)).position == 100 * SAMPLES
    await sink.close()
    assert not list(tmp_path.iterdir())


async def test_a_turn_without_end_does_not_fill_the_memory(
    clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_sink, "KEPT_S", 1)
    sink = LocalSink("wav", str(tmp_path), clock=clock)
    say(sink, 1, 200)
    (path,) = await written(sink, clock, 1)
    with wave.open(str(path)) as sound:
        assert sound.getnframes() == 8000
    await sink.close()


async def test_a_folder_that_cannot_be_written_is_told_and_no_error(
    clock: FakeClock, tmp_path: Path, problems: list[str]
) -> None:
    (tmp_path / "file").touch()
    sink = LocalSink(
        "wav",
        str(tmp_path / "file"),
        clock=clock,
        problem=lambda what, error: problems.append(f"{what}: {type(error).__name__}"),
    )
    say(sink, 1, 5)
    await clock.advance(10.0)
    await until(lambda: bool(problems))
    assert problems == ["local sound: FileExistsError"]
    assert (await sink.drained(1)).position == 5 * SAMPLES
    await sink.close()


async def test_without_a_folder_files_lie_in_the_hosts_data(
    clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sink = LocalSink(clock=clock, name="???")
    say(sink, 1, 5)
    (path,) = await written(sink, clock, 1)
    assert path.parts[:2] == ("data", "qwen3tts")
    assert path.name.startswith("local-")
    await sink.close()


async def test_a_turn_is_played(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    speaker = Speaker()
    monkeypatch.setattr(local_sink, "open_player", speaker.find)
    sink = LocalSink("play", clock=clock)
    say(sink, 1, 25)
    await clock.advance(2.0)
    assert speaker.rate_hz == 8000
    assert len(speaker.pcm) == 26 * 160 * 2
    assert speaker.ends == ["finish", "stop"]
    say(sink, 2, 25)
    await clock.advance(0.1)
    sink.interrupt()
    await settle()
    assert speaker.ends == ["finish", "stop", "stop"]
    await sink.close()


async def test_a_player_that_breaks_is_told_and_the_turn_goes_on(
    clock: FakeClock, problems: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker = Speaker()
    speaker.breaks = True
    monkeypatch.setattr(local_sink, "open_player", speaker.find)
    sink = LocalSink(
        "play",
        clock=clock,
        problem=lambda what, error: problems.append(str(error)),
    )
    say(sink, 1, 25)
    await clock.advance(5.0)
    assert problems == ["unplugged"]
    assert speaker.ends == ["stop"]
    assert (await sink.drained(1)).position == 25 * SAMPLES
    await sink.close()


async def test_a_player_that_does_not_end_is_stopped(
    clock: FakeClock, problems: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Endless(Speaker):
        async def finish(self) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(local_sink, "CLOSE_S", 0.0)
    speaker = Endless()
    monkeypatch.setattr(local_sink, "open_player", speaker.find)
    sink = LocalSink(
        "play",
        clock=clock,
        problem=lambda what, error: problems.append(type(error).__name__),
    )
    say(sink, 1, 5)
    await clock.advance(5.0)
    await until(lambda: bool(speaker.ends))
    assert speaker.ends == ["stop"]
    assert problems == ["TimeoutError"]
    await sink.close()


async def test_where_nothing_can_play_files_are_written(
    clock: FakeClock, tmp_path: Path, problems: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(rate_hz: int) -> Player:
        raise MissingProgram("no speaker here")

    monkeypatch.setattr(local_sink, "open_player", nothing)
    sink = LocalSink(
        "play",
        str(tmp_path),
        clock=clock,
        problem=lambda what, error: problems.append(str(error)),
    )
    for turn in (1, 2):
        say(sink, turn, 5)
        await written(sink, clock, turn)
    assert problems == ["no speaker here"]
    assert len(sink.files) == 2
    await sink.close()


def test_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="wav, play, off"):
        LocalSink("loud")
