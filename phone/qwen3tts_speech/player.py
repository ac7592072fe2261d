"""Playback on this machine: a player program, or the package sounddevice."""

from __future__ import annotations

import asyncio
import importlib
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from qwen3tts_wire.errors import SpeechError
from qwen3tts_wire.process import PLAYING, child_environment

PROGRAMS: dict[str, tuple[str, ...]] = {
    "aplay": ("-q", "-t", "raw", "-f", "S16_LE", "-c", "1", "-r", "{rate_hz}", "-"),
    "paplay": ("--raw", "--format=s16le", "--rate={rate_hz}", "--channels=1"),
    # One channel is what it takes raw samples for, and the option for it has changed its name.
    "ffplay": (
        *("-nodisp", "-autoexit", "-loglevel", "error"),
        *("-f", "s16le", "-ar", "{rate_hz}", "-i", "-"),
    ),
}
"""Player programs by preference, with their arguments for samples from standard input."""
MAX_ERROR_BYTES = 4096
STOP_S = 2.0
"""Timeout of a stopped player."""


class MissingProgram(SpeechError):
    """No player is installed."""

    code = "missing_program"


class PlayerFailed(SpeechError):
    """A player ended with an error."""

    code = "player_failed"


class Player(Protocol):
    """Plays s16le mono samples as they arrive."""

    async def write(self, pcm: bytes) -> None:
        """Play samples, with backpressure. Raises PlayerFailed or OSError."""

    async def finish(self) -> None:
        """Play what was written to its end. Raises PlayerFailed."""

    async def stop(self) -> None:
        """End, and drop what is not yet played; idempotent."""


def find_player(which: Callable[[str], str | None] = shutil.which) -> tuple[str, str]:
    """Return name and path of an installed player program; raises MissingProgram."""
    for name in PROGRAMS:
        if path := which(name):
            return name, path
    raise MissingProgram(
        f"no player is installed: none of {', '.join(PROGRAMS)} is on the path.",
        remedy="Install alsa-utils, pulseaudio-utils or ffmpeg; or write a file.",
    )


async def open_player(rate_hz: int) -> Player:
    try:
        return await ProgramPlayer.start(rate_hz)
    except MissingProgram as missing:
        try:
            module = importlib.import_module("sounddevice")
            return SoundDevicePlayer(await asyncio.to_thread(_open_stream, module, rate_hz))
        except Exception as error:  # the package is missing, or its library, or the device
            raise MissingProgram(
                f"{missing.message} The Python package sounddevice cannot play either: {error}.",
                remedy=missing.remedy,
            ) from error


def _open_stream(module: Any, rate_hz: int) -> Any:
    stream = module.RawOutputStream(samplerate=rate_hz, channels=1, dtype="int16")
    stream.start()
    return stream


class ProgramPlayer:
    """Running player program."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self._name = name
        self._process = process
        assert process.stdin is not None
        self._stdin = process.stdin
        self._stderr = b""
        # A player whose standard error is not read would block at a full pipe.
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(
        cls, rate_hz: int, found: tuple[str, str] | None = None, arguments: Sequence[str] = ()
    ) -> ProgramPlayer:
        """Start ``found`` (name, path) or the first installed player."""
        name, path = found or find_player()
        process = await asyncio.create_subprocess_exec(
            path,
            *(arguments or [each.format(rate_hz=rate_hz) for each in PROGRAMS[name]]),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=child_environment(also=PLAYING),
            # Ctrl-C is for us; we end the player ourselves.
            start_new_session=True,
        )
        return cls(name, process)

    async def write(self, pcm: bytes) -> None:
        try:
            self._stdin.write(pcm)
            await self._stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            raise await self._failure() from None

    async def finish(self) -> None:
        self._stdin.close()
        with suppress(BrokenPipeError, ConnectionResetError):
            await self._stdin.wait_closed()
        if await self._process.wait() != 0:
            raise await self._failure()

    async def stop(self, patience_s: float = STOP_S) -> None:
        if self._process.returncode is None:
            self._process.terminate()
            try:
                async with asyncio.timeout(patience_s):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        await self._reading

    async def _read(self) -> None:
        assert self._process.stderr is not None
        while read := await self._process.stderr.read(MAX_ERROR_BYTES):
            self._stderr = (self._stderr + read)[:MAX_ERROR_BYTES]

    async def _failure(self) -> PlayerFailed:
        await self._reading
        code = await self._process.wait()
        reason = " ".join(self._stderr.decode("utf-8", "replace").split())[:300]
        return PlayerFailed(
            f"{self._name} ended with {code}: {reason or 'no reason given'}.",
            remedy="Check the sound device, or write a file.",
        )


class SoundDevicePlayer:
    """Open stream of the package sounddevice."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def write(self, pcm: bytes) -> None:
        await asyncio.to_thread(self._stream.write, pcm)

    async def finish(self) -> None:
        await asyncio.to_thread(self._stream.stop)
        await self._close()

    async def stop(self) -> None:
        if self._stream is not None:
            await asyncio.to_thread(self._stream.abort)
            await self._close()

    async def _close(self) -> None:
        stream, self._stream = self._stream, None
        await asyncio.to_thread(stream.close)
