"""Playback without a telephone: a WAV file for each turn, or this machine's loudspeaker."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import itertools
import os
import re
import shutil
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from qwen3tts_codecs.g711 import PCMU
from qwen3tts_codecs.payload import Payload
from qwen3tts_codecs.wav import wav_bytes
from qwen3tts_pacer.clock import Clock
from qwen3tts_wire.process import PLAYING, child_environment

from .response_sink import ResponseSink

CLOSE_S = 2.0
"""Timeout of a player's end."""

PROGRAMS: dict[str, tuple[str, ...]] = {
    "aplay": ("-q", "-t", "raw", "-f", "S16_LE", "-c", "1", "-r", "{rate_hz}", "-"),
    # One channel is what it takes raw samples for, and the option for it has changed its name.
    "ffplay": (
        *("-nodisp", "-autoexit", "-loglevel", "quiet"),
        *("-f", "s16le", "-ar", "{rate_hz}", "-i", "-"),
    ),
}
"""Players of raw samples from standard input, with their arguments."""


class NoPlayer(Exception):
    """No player is installed."""


class Player(Protocol):
    """Plays samples as they arrive."""

    async def play(self, pcm: bytes) -> None:
        """Play s16le mono samples. Raises OSError."""
        ...

    async def close(self, cut: bool) -> None:
        """End; ``cut``: drop what is not yet played."""
        ...


class _Program:
    """Player program."""

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
    """The ``sounddevice`` package."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def play(self, pcm: bytes) -> None:
        await asyncio.to_thread(self._stream.write, pcm)

    async def close(self, cut: bool) -> None:
        await asyncio.to_thread(self._stream.abort if cut else self._stream.stop)
        await asyncio.to_thread(self._stream.close)


async def open_player(rate_hz: int) -> Player:
    """Start a player.

    Raises:
        NoPlayer: neither program nor sound device.
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


KINDS = ("wav", "play", "off")
KEPT_S = 600
"""Seconds of a turn kept for its file."""
FOLDER = Path("data", "qwen3tts")
"""Default folder, below the host's working directory."""

Problem = Callable[[str, BaseException | str], None]
"""Called with the kind of a failure and its error."""


class LocalSink(ResponseSink):
    """Paces frames as a call does, and writes or plays them.

    A failure of file or player is reported once and never raised; without a player files are
    written.

    Args:
        kind: "wav", "play" or "off".
        folder: of WAV files; None: a folder in the host's data.
        name: the conversation; part of file names.
        lead_ms: playout lead.
        linger_ms: time after the last frame that ends a turn.
        clock: of the pacing.
        problem: called with failures.
        payload: codec of the frames.
        find_player: starts a player for a rate in Hz; may raise NoPlayer.
    """

    def __init__(
        self,
        kind: str = "wav",
        folder: str | None = None,
        *,
        name: str = "local",
        lead_ms: int = 60,
        linger_ms: int = 300,
        clock: Clock | None = None,
        problem: Problem = lambda what, error: None,
        payload: Payload = PCMU,
        find_player: Callable[[int], Awaitable[Player]] = open_player,
    ) -> None:
        if kind not in KINDS:
            raise ValueError(f"local sound is one of {', '.join(KINDS)}, not {kind!r}")
        super().__init__(None, payload=payload, lead_ms=lead_ms, linger_ms=linger_ms, clock=clock)
        self.kind = kind
        self.files: deque[Path] = deque(maxlen=64)
        """The last files written."""
        self._folder = Path(folder) if folder else FOLDER
        self._name = re.sub(r"[^\w.-]+", "_", name).strip("._")[:64] or "local"
        self._problem = problem
        self._find_player = find_player
        self._player: Player | None = None
        self._sound = bytearray()
        self._most_bytes = KEPT_S * payload.sample_hz * 2
        self._numbers = itertools.count(1)

    async def open_response(self) -> bool:
        self._sound.clear()
        if self.kind == "play":
            try:
                self._player = await self._find_player(self.payload.sample_hz)
            except (NoPlayer, OSError) as error:
                self._problem("local sound", error)
                self.kind = "wav"
        return True

    async def take(self, payload: bytes) -> bool:
        if self.kind == "off":
            return True
        pcm = self.payload.decode(payload).tobytes()
        if self._player is not None:
            await self._play(self._player, pcm)
        elif self.kind == "wav" and len(self._sound) < self._most_bytes:
            self._sound += pcm
        return True

    async def close_response(self, cut: bool) -> None:
        player, self._player = self._player, None
        if player is not None:
            await player.close(cut)
        if self._sound:
            sound = bytes(self._sound)
            self._sound.clear()
            began = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
            path = self._folder / f"{self._name}-{began}-{next(self._numbers)}.wav"
            try:
                await asyncio.to_thread(_write_wav, path, self.payload.sample_hz, sound)
            except OSError as error:
                self._problem("local sound", error)
            else:
                self.files.append(path)

    async def _play(self, player: Player, pcm: bytes) -> None:
        try:
            await player.play(pcm)
        except Exception as error:  # of whatever plays: the turn goes on in silence
            self._problem("local sound", error)
            self._player = None
            await player.close(True)


def _write_wav(path: Path, rate_hz: int, pcm: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(wav_bytes(pcm, rate_hz))
