from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qwen3tts_speech.player import (
    PROGRAMS,
    MissingProgram,
    PlayerFailed,
    ProgramPlayer,
    find_player,
    open_player,
)

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
    await player.write(SOUND[:1000])
    await player.write(SOUND[1000:])
    await player.finish()
    got = out.read_bytes()
    assert got.startswith(SOUND)
    assert b"8000" in got[len(SOUND) :]


async def test_a_program_that_is_cut_is_not_waited_for(folder: Path) -> None:
    program(folder, "aplay", "sys.stdin.buffer.read()\nimport threading; threading.Event().wait()")
    player = await open_player(8000)
    await player.write(SOUND)
    async with asyncio.timeout(30.0):
        await player.stop()


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
    await player.write(SOUND)
    await (player.stop() if cut else player.finish())
    await player.stop()
    assert log == ["open 24000 1 int16", "start", "2560 bytes", end, "close"]


@pytest.mark.usefixtures("folder")
async def test_nothing_to_play_with_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingProgram, match="aplay, paplay, ffplay"):
        await open_player(8000)
    sounddevice(monkeypatch, breaks=True)
    with pytest.raises(MissingProgram, match="no device"):
        await open_player(8000)


def test_the_first_player_on_the_path_is_taken() -> None:
    there = {"paplay": "/usr/bin/paplay", "ffplay": "/usr/bin/ffplay"}
    assert find_player(there.get) == ("paplay", "/usr/bin/paplay")
    with pytest.raises(MissingProgram, match="aplay, paplay, ffplay"):
        find_player(lambda _: None)


def python(code: str) -> tuple[tuple[str, str], list[str]]:
    """A player that is a line of Python."""
    return ("python", sys.executable), ["-c", code]


async def test_a_player_gets_every_sample_and_is_waited_for(tmp_path: Path) -> None:
    code = f"import sys; open({str(tmp_path / 'heard')!r}, 'wb').write(sys.stdin.buffer.read())"
    player = await ProgramPlayer.start(24_000, *python(code))
    for _ in range(10):
        await player.write(b"\1\2" * 10_000)
    await player.finish()
    await player.stop()
    assert (tmp_path / "heard").read_bytes() == b"\1\2" * 100_000


async def test_a_player_that_fails_is_told_with_its_own_words() -> None:
    player = await ProgramPlayer.start(24_000, *python("import sys; sys.exit('no sound card')"))
    with pytest.raises(PlayerFailed, match="ended with 1: no sound card"):
        await flood(player)


async def flood(player: ProgramPlayer) -> None:
    for _ in range(1000):
        await player.write(bytes(100_000))


async def test_a_player_that_talks_a_lot_does_not_get_stuck() -> None:
    code = "import sys; sys.stderr.write('underrun\\n' * 50_000); sys.stdin.buffer.read()"
    player = await ProgramPlayer.start(24_000, *python(code))
    for _ in range(10):
        await player.write(bytes(100_000))
    await player.finish()
    await player.stop()


async def test_a_player_is_stopped_even_if_it_does_not_want_to() -> None:
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
    player = await ProgramPlayer.start(24_000, *python(code))
    await player.stop(patience_s=0.01)
    assert player._process.returncode in (-9, -15)
