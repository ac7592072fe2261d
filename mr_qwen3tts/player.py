"""Sound out of this machine's speaker, by what there is to play it with."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import shutil
from typing import Any, Protocol

from qwen3tts_wire.process import PLAYING, child_environment

CLOSE_S = 2.0
"""Longest wait for a program to play out what it was given."""

PROGRAMS: dict[str, tuple[str, ...]] = {
    "aplay": ("-q", "-t", "raw", "-f", "S16_LE", "-c", "1", "-r", "{rate_hz}", "-"),
    # One channel is what it takes raw samples for, and the option for it has changed its name.
    "ffplay": (
        *("-nodisp", "-autoexit", "-loglevel", "quiet"),
        *("-f", "s16le", "-ar", "{rate_hz}", "-i", "-"),
    ),
}
"""Programs that play raw samples from their standard input, and how they are called."""


class NoPlayer(Exception):
    """Nothing here can play sound."""


class Player(Protocol):
    """Plays samples as they come."""

    async def play(self, pcm: bytes) -> None:
        """Take s16le samples, one channel. Raises OSError when they cannot be played."""
        ...

    async def close(self, cut: bool) -> None:
        """No more of them; ``cut``: what was not played yet need not be."""
        ...


class _Program:
    """A program that reads samples from its standard input."""

    def __init__(self, process: asyncio.subprocess.Process, samples: asyncio.StreamWriter) -> None:
        self._process = process
        self._samples = samples

    async def play(self, pcm: bytes) -> None:
        self._samples.write(pcm)
        await self._samples.drain()

    async def close(self, cut: bool) -> None:
        process = self._process
        self._samples.close()
        if not cut:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await process.wait()
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


class _SoundDevice:
    """The ``sounddevice`` package, where it is installed."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def play(self, pcm: bytes) -> None:
        await asyncio.to_thread(self._stream.write, pcm)

    async def close(self, cut: bool) -> None:
        await asyncio.to_thread(self._stream.abort if cut else self._stream.stop)
        await asyncio.to_thread(self._stream.close)


async def open_player(rate_hz: int) -> Player:
    """Start what there is to play with.

    Raises:
        NoPlayer: neither a program nor a sound device is there.
    """
    for name, arguments in PROGRAMS.items():
        path = shutil.which(name)
        if path is not None:
            process = await asyncio.create_subprocess_exec(
                path,
                *(each.format(rate_hz=rate_hz) for each in arguments),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                env=child_environment(also=PLAYING),
            )
            assert process.stdin is not None  # it was asked for
            return _Program(process, process.stdin)
    try:
        module = importlib.import_module("sounddevice")
        return _SoundDevice(await asyncio.to_thread(_open_stream, module, rate_hz))
    except Exception as error:  # the package is missing, or its library, or the device
        raise NoPlayer(
            f"no sound can be played here ({error}); install {', '.join(PROGRAMS)} or the Python"
            " package sounddevice"
        ) from error


def _open_stream(module: Any, rate_hz: int) -> Any:
    stream = module.RawOutputStream(samplerate=rate_hz, channels=1, dtype="int16")
    stream.start()
    return stream
