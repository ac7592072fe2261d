"""Speech into a WAV file while it is made, or into a pipe."""

from __future__ import annotations

import asyncio
import os
import select
import stat
from pathlib import Path

from qwen3tts_phone.audio.wav import wav_header

UNKNOWN_BYTES = 0xFFFFFFFF - 36
"""Length in the header of a stream whose end is not known."""
SAVE_BYTES = 48_000
"""The header is brought up to date at least as often as this."""


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
        self._write(wav_header(0 if self._seekable else UNKNOWN_BYTES, rate_hz, 1))

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
            os.pwrite(self._file.fileno(), wav_header(self.data_bytes, self._rate_hz, 1), 0)
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
        self._header = wav_header(UNKNOWN_BYTES, rate_hz, 1)

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
