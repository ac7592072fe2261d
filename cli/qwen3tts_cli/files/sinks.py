"""Files of sound, and standard output, behind the interface of the player."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from qwen3tts_cli.files.writable import SOUND_ENDINGS

if TYPE_CHECKING:
    from qwen3tts_cli.wav import WavWriter
    from qwen3tts_server.dialects.encoding import SoundFile

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
        from qwen3tts_cli.wav import WavWriter

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
        from qwen3tts_cli.wav import WavStream

        self._wav = WavStream(sys.stdout.fileno(), rate_hz)

    async def write(self, pcm: bytes) -> None:
        """Hand samples on, no faster than they are read."""
        await self._wav.write(pcm)

    async def finish(self) -> None:
        """Nothing is held back."""


assert set(_FORMS) == set(SOUND_ENDINGS[1:])
