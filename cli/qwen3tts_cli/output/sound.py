"""Speech into a WAV file, a file of another format, a pipe or the loudspeaker."""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from qwen3tts_cli.output.exits import MissingProgram
from qwen3tts_cli.output.writable import SOUND_ENDINGS
from qwen3tts_wire.errors import SpeechError
from qwen3tts_wire.process import PLAYING, child_environment

if TYPE_CHECKING:
    from qwen3tts_server.dialects.encoding import SoundFile


UNKNOWN_BYTES = 0xFFFFFFFF - 36
"""Length in the header of a stream whose end is not known."""
SAVE_BYTES = 48_000
"""The header is brought up to date at least as often as this."""


def _wav_header(data_bytes: int, rate_hz: int, channels: int) -> bytes:
    # Imported when it is needed: it loads numpy, which the command line's start does not.
    from qwen3tts_phone.audio.wav import wav_header

    return wav_header(data_bytes, rate_hz, channels)


class WavWriter:
    """One channel of 16-bit samples. The header fits what was written, also after a kill."""

    def __init__(self, path: Path, rate_hz: int) -> None:
        """Create or empty ``path``; raises ``OSError`` where that is impossible."""
        self._file = path.open("wb", buffering=0)
        self._rate_hz = rate_hz
        self._seekable = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)
        self._saved = 0
        self.data_bytes = 0
        """Bytes of samples so far."""
        self._write(_wav_header(0 if self._seekable else UNKNOWN_BYTES, rate_hz, 1))

    @property
    def seconds(self) -> float:
        """Length so far."""
        return self.data_bytes / 2 / self._rate_hz

    def write(self, pcm: bytes) -> None:
        """Append samples."""
        self._write(pcm)
        self.data_bytes += len(pcm)
        if self.data_bytes - self._saved >= SAVE_BYTES:
            self._save()

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]

    def _save(self) -> None:
        if self._seekable:
            os.pwrite(self._file.fileno(), _wav_header(self.data_bytes, self._rate_hz, 1), 0)
        self._saved = self.data_bytes

    def close(self) -> None:
        """Finish the header and the file."""
        if not self._file.closed:
            try:
                self._save()
            finally:
                self._file.close()


class WavStream:
    """The same into a pipe, such as standard output, where no header can be mended.

    A reader that takes its time holds up the speech, not the event loop.
    """

    def __init__(self, fd: int, rate_hz: int) -> None:
        """``fd`` stays open; nothing else may write to it meanwhile."""
        self._fd = fd
        self._header = _wav_header(UNKNOWN_BYTES, rate_hz, 1)

    async def write(self, pcm: bytes) -> None:
        """Append samples; raises ``BrokenPipeError`` when the reader has gone."""
        view = memoryview(self._header + pcm)
        self._header = b""
        while view:
            await _writable(self._fd)
            # A pipe that can be written to takes at least this much without waiting (POSIX).
            view = view[os.write(self._fd, view[: select.PIPE_BUF]) :]


async def _writable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_writer(fd, ready.set)
    except PermissionError:
        return  # a regular file or /dev/null: it never waits
    try:
        await ready.wait()
    finally:
        loop.remove_writer(fd)


PLAYERS: dict[str, Callable[[int], list[str]]] = {
    "aplay": lambda hz: ["-q", "-t", "raw", "-f", "S16_LE", "-r", str(hz), "-c", "1", "-"],
    "paplay": lambda hz: ["--raw", "--format=s16le", f"--rate={hz}", "--channels=1"],
    "ffplay": lambda _: ["-nodisp", "-autoexit", "-loglevel", "error", "-f", "wav", "-i", "-"],
}
"""What is tried, in order, and its arguments at a rate in hertz."""
MAX_ERROR_BYTES = 4096
STOP_S = 2.0
"""How long a player may take to end when it is told to."""


class PlayerFailed(SpeechError):
    """The player program ended before the sound did."""

    code = "player_failed"


def find_player(which: Callable[[str], str | None] = shutil.which) -> tuple[str, str]:
    """Name and path of the first player that is installed.

    Raises:
        MissingProgram: there is none.
    """
    for name in PLAYERS:
        if path := which(name):
            return name, path
    raise MissingProgram(
        f"no player is installed: none of {', '.join(PLAYERS)} is on the path.",
        remedy="Install alsa-utils, pulseaudio-utils or ffmpeg; or write a file with --out.",
    )


class Player:
    """A running player; it takes sound no faster than it plays it."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self._name = name
        self._process = process
        assert process.stdin is not None
        self._stdin = process.stdin
        self._said = b""
        # A player that nobody listens to would stop at a full pipe.
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(
        cls, rate_hz: int, found: tuple[str, str] | None = None, arguments: Sequence[str] = ()
    ) -> Player:
        """Start ``found`` (a name and a path) or the first player that is installed."""
        name, path = found or find_player()
        process = await asyncio.create_subprocess_exec(
            path,
            *(arguments or PLAYERS[name](rate_hz)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=child_environment(also=PLAYING),
            # Ctrl-C is for us; we end the player ourselves.
            start_new_session=True,
        )
        player = cls(name, process)
        if name == "ffplay":
            await player.write(_wav_header(UNKNOWN_BYTES, rate_hz, 1))
        return player

    async def write(self, pcm: bytes) -> None:
        """Hand over samples, 16 bits little-endian; waits while the player has enough.

        Raises:
            PlayerFailed: it has ended; says why if it told.
        """
        try:
            self._stdin.write(pcm)
            await self._stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            raise await self._failure() from None

    async def finish(self) -> None:
        """Wait until everything has been heard; raises `PlayerFailed` as `write` does."""
        self._stdin.close()
        with suppress(BrokenPipeError, ConnectionResetError):
            await self._stdin.wait_closed()
        if await self._process.wait() != 0:
            raise await self._failure()

    async def stop(self, patience_s: float = STOP_S) -> None:
        """Silence now; harmless when it has ended."""
        if self._process.returncode is None:
            self._process.terminate()
            try:
                async with asyncio.timeout(patience_s):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        await self._listening

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while said := await self._process.stderr.read(MAX_ERROR_BYTES):
            self._said = (self._said + said)[:MAX_ERROR_BYTES]

    async def _failure(self) -> PlayerFailed:
        await self._listening
        code = await self._process.wait()
        reason = " ".join(self._said.decode("utf-8", "replace").split())[:300]
        return PlayerFailed(
            f"{self._name} ended with {code}: {reason or 'no reason given'}.",
            remedy="Check the sound device, or write a file with --out.",
        )


_FORMS = {".flac": "flac", ".mp3": "mp3", ".ogg": "opus", ".opus": "opus"}
"""The encoder's names."""


class Sink(Protocol):
    """Takes samples as they come."""

    async def write(self, pcm: bytes) -> None:
        """Samples, 16 bits little-endian."""

    async def finish(self) -> None:
        """Nothing follows."""


class FileSink:
    """A file of sound in the form that its ending names.

    It is opened by the first sound: what fails before that leaves an older file alone.
    """

    def __init__(self, out: Path, rate_hz: int) -> None:
        self._out = out
        self._rate_hz = rate_hz
        self._writer: WavWriter | EncodedWriter | None = None

    async def write(self, pcm: bytes) -> None:
        """Append samples; raises ``OSError`` where the file cannot be written."""
        if self._writer is None:
            self._writer = self._opened()
        self._writer.write(pcm)

    def _opened(self) -> WavWriter | EncodedWriter:

        form = _FORMS.get(self._out.suffix.lower())
        if form is None or (self._out.exists() and not self._out.is_file()):
            return WavWriter(self._out, self._rate_hz)
        return EncodedWriter(self._out, form, self._rate_hz)

    async def finish(self) -> None:
        """Finish the file."""
        self.close()

    def close(self) -> None:
        """Finish the file, also after an error."""
        if self._writer is not None:
            self._writer.close()


class EncodedWriter:
    """One channel of 16-bit samples, encoded while it is made."""

    def __init__(self, path: Path, form: str, rate_hz: int) -> None:
        """Create or empty ``path``; raises ``OSError``, EngineUnavailable."""
        from qwen3tts_server.dialects.encoding import SoundFile

        self._file: BinaryIO = path.open("wb", buffering=0)
        try:
            self._sound: SoundFile = SoundFile(form, rate_hz, self._file)
        except BaseException:
            self._file.close()
            raise

    def write(self, pcm: bytes) -> None:
        """Append samples."""
        self._sound.push(pcm)

    def close(self) -> None:
        """Finish the file."""
        if not self._file.closed:
            try:
                self._sound.close()
            finally:
                self._file.close()


class PipeSink:
    """Standard output, as WAV."""

    def __init__(self, rate_hz: int) -> None:

        self._wav = WavStream(sys.stdout.fileno(), rate_hz)

    async def write(self, pcm: bytes) -> None:
        """Hand samples on, no faster than they are read."""
        await self._wav.write(pcm)

    async def finish(self) -> None:
        """Nothing is held back."""


assert set(_FORMS) == set(SOUND_ENDINGS[1:])
