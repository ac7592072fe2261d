from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mr_qwen3tts.local_sink import PROGRAMS, NoPlayer, Player, open_player

SOUND = bytes(range(256)) * 10


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where programs are looked for."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    return tmp_path


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport pathlib, sys\n{script}\n")
    path.chmod(0o700)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
async def test_a_program_is_given_the_samples(folder: Path, name: str) -> None:
    out = folder / "out"
    program(
        folder,
        name,
        f"data = sys.stdin.buffer.read()\n"
        f"pathlib.Path({str(out)!r}).write_bytes(data + ' '.join(sys.argv).encode())",
    )
    player = await open_player(8000)
    await player.play(SOUND[:1000])
    await player.play(SOUND[1000:])
    await player.close(cut=False)
    got = out.read_bytes()
    assert got.startswith(SOUND)
    assert b" 8000 " in got[len(SOUND) :]


async def test_a_program_that_is_cut_is_not_waited_for(folder: Path) -> None:
    program(folder, "aplay", "sys.stdin.buffer.read()\nimport threading; threading.Event().wait()")
    player = await open_player(8000)
    await player.play(SOUND)
    async with asyncio.timeout(30.0):
        await player.close(cut=True)


async def test_a_program_that_does_not_end_is_stopped(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mr_qwen3tts.local_sink.CLOSE_S", 0.01)
    program(folder, "aplay", "import threading; threading.Event().wait()")
    player = await open_player(8000)
    async with asyncio.timeout(30.0):
        await player.close(cut=False)


async def play_until_it_breaks(player: Player) -> None:
    async with asyncio.timeout(30.0):
        while True:
            await player.play(SOUND)
            await asyncio.sleep(0)


async def test_a_program_that_has_ended_is_an_error(folder: Path) -> None:
    program(folder, "aplay", "sys.exit(3)")
    player = await open_player(8000)
    # Whichever is noticed first: the pipe has no reader, or the program is gone.
    with pytest.raises(ConnectionError):
        await play_until_it_breaks(player)
    await player.close(cut=True)


class Stream:
    def __init__(self, log: list[str], breaks: bool, **options: Any) -> None:
        self.log = log
        self.breaks = breaks
        log.append(f"open {options['samplerate']} {options['channels']} {options['dtype']}")

    def start(self) -> None:
        if self.breaks:
            raise RuntimeError("no device")
        self.log.append("start")

    def write(self, pcm: bytes) -> None:
        self.log.append(f"{len(pcm)} bytes")

    def stop(self) -> None:
        self.log.append("stop")

    def abort(self) -> None:
        self.log.append("abort")

    def close(self) -> None:
        self.log.append("close")


def sounddevice(monkeypatch: pytest.MonkeyPatch, *, breaks: bool = False) -> list[str]:
    log: list[str] = []
    module = SimpleNamespace(RawOutputStream=lambda **options: Stream(log, breaks, **options))
    monkeypatch.setitem(sys.modules, "sounddevice", module)
    return log


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("cut", "end"), [(False, "stop"), (True, "abort")])
async def test_a_sound_device_plays(monkeypatch: pytest.MonkeyPatch, cut: bool, end: str) -> None:
    log = sounddevice(monkeypatch)
    player = await open_player(24_000)
    await player.play(SOUND)
    await player.close(cut)
    assert log == ["open 24000 1 int16", "start", "2560 bytes", end, "close"]


@pytest.mark.usefixtures("folder")
async def test_nothing_to_play_with_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoPlayer, match="install aplay, ffplay"):
        await open_player(8000)
    sounddevice(monkeypatch, breaks=True)
    with pytest.raises(NoPlayer, match="no device"):
        await open_player(8000)
