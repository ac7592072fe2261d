"""Audio output: WAV and encoded files, pipe."""

from __future__ import annotations

import asyncio
import os
import select
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from qwen3tts_cli.output.writable import SOUND_ENDINGS

if TYPE_CHECKING:
    from qwen3tts_server.dialects.encoding import SoundFile


UNKNOWN_BYTES = 0xFFFFFFFF - 36
"""Header length of an unbounded stream."""
SAVE_BYTES = 48_000
"""Interval of header updates."""


def _wav_header(data_bytes: int, rate_hz: int, channels: int) -> bytes:
    # Imported when it is needed: it loads numpy, which the command line's start does not.
    from qwen3tts_codecs.wav import wav_header

    return wav_header(data_bytes, rate_hz, channels)


class WavWriter:
    """Mono 16-bit WAV file with a valid header even after a kill."""

    def __init__(self, path: Path, rate_hz: int) -> None:
        self._file = path.open("wb", buffering=0)
        self._rate_hz = rate_hz
        self._seekable = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)
        self._saved = 0
        self.data_bytes = 0
        self._write(_wav_header(0 if self._seekable else UNKNOWN_BYTES, rate_hz, 1))

    @property
    def seconds(self) -> float:
        return self.data_bytes / 2 / self._rate_hz

    def write(self, pcm: bytes) -> None:
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
        if not self._file.closed:
            try:
                self._save()
            finally:
                self._file.close()


class WavStream:
    """WAV into a pipe; backpressure does not block the event loop."""

    def __init__(self, fd: int, rate_hz: int) -> None:
        """``fd`` stays open and must not be shared."""
        self._fd = fd
        self._header = _wav_header(UNKNOWN_BYTES, rate_hz, 1)

    async def write(self, pcm: bytes) -> None:
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


_FORMS = {".flac": "flac", ".mp3": "mp3", ".ogg": "opus", ".opus": "opus"}
"""Encoder names."""


class AudioSink(Protocol):
    """Consumer of samples."""

    async def write(self, pcm: bytes) -> None:
        """Take int16 little-endian samples."""

    async def finish(self) -> None: ...


class FileSink:
    """Audio file by suffix, opened at the first samples: earlier failures keep an old file."""

    def __init__(self, out: Path, rate_hz: int) -> None:
        self._out = out
        self._rate_hz = rate_hz
        self._writer: WavWriter | EncodedWriter | None = None

    async def write(self, pcm: bytes) -> None:
        if self._writer is None:
            self._writer = self._opened()
        self._writer.write(pcm)

    def _opened(self) -> WavWriter | EncodedWriter:

        form = _FORMS.get(self._out.suffix.lower())
        if form is None or (self._out.exists() and not self._out.is_file()):
            return WavWriter(self._out, self._rate_hz)
        return EncodedWriter(self._out, form, self._rate_hz)

    async def finish(self) -> None:
        self.close()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class EncodedWriter:
    def __init__(self, path: Path, form: str, rate_hz: int) -> None:
        from qwen3tts_server.dialects.encoding import SoundFile

        self._file: BinaryIO = path.open("wb", buffering=0)
        try:
            self._sound: SoundFile = SoundFile(form, rate_hz, self._file)
        except BaseException:
            self._file.close()
            raise

    def write(self, pcm: bytes) -> None:
        self._sound.push(pcm)

    def close(self) -> None:
        if not self._file.closed:
            try:
                self._sound.close()
            finally:
                self._file.close()


class PipeSink:
    def __init__(self, rate_hz: int) -> None:

        self._wav = WavStream(sys.stdout.fileno(), rate_hz)

    async def write(self, pcm: bytes) -> None:
        await self._wav.write(pcm)

    async def finish(self) -> None: ...


assert set(_FORMS) == set(SOUND_ENDINGS[1:])
