"""One recording of a call, and its encoding as Ogg Opus, MP3 or FLAC."""

from __future__ import annotations

import asyncio
import os
import wave
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from qwen3tts_phone.errors import CallError

if TYPE_CHECKING:
    from av.audio.stream import AudioStream


OPUS_RATES: Final = (8000, 12000, 16000, 24000, 48000)
"""Sample rates that Opus takes (RFC 6716 section 2)."""
CHUNK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Encoder:
    container: str
    """FFmpeg's name of the muxer."""
    codec: str
    sample_format: str
    lossy: bool = True
    """True if it has a bit rate."""
    rates: tuple[int, ...] = ()
    """Sample rates that the codec takes, hertz; empty: all that calls have."""
    options: Mapping[str, str] = field(default_factory=dict)


_OPUS = _Encoder(
    "ogg",
    "libopus",
    "s16",
    rates=OPUS_RATES,
    options={"application": "voip", "frame_duration": "20"},
)
_ENCODERS: Mapping[str, _Encoder] = MappingProxyType(
    {
        ".opus": _OPUS,
        ".ogg": _OPUS,
        ".mp3": _Encoder("mp3", "libmp3lame", "s16p"),
        ".flac": _Encoder("flac", "flac", "s16", lossy=False),
    }
)
ENCODED: Final = tuple(_ENCODERS)
"""Endings that a file is encoded for."""


class EncodingFailed(Exception):
    """Encoding failure; the WAV file is unchanged."""


def require_pyav() -> None:
    try:
        import av  # noqa: F401
    except ImportError:
        raise EncodingFailed("PyAV is not installed; pip install 'mr_qwen3tts[phone]'.") from None


def write_encoded(source: Path, target: Path, *, bitrate: int = 32_000) -> None:
    """Encode a 16-bit WAV of one or two tracks (0600); blocking, for a thread.

    The suffix of ``target``, one of ``ENCODED``, chooses the format; ``bitrate`` is of all tracks.
    It is renamed when complete.

    Raises EncodingFailed: the source is no such WAV, PyAV lacks the encoder, or the disk is
    full.
    """
    part = target.with_name(f"{target.name}.part")
    require_pyav()
    import av

    try:
        part.unlink(missing_ok=True)  # of a process that was killed; it may have any mode
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        _encode(source, part, _ENCODERS[target.suffix.lower()], bitrate)
        part.rename(target)
    except (OSError, EOFError, ValueError, wave.Error, av.FFmpegError) as error:
        part.unlink(missing_ok=True)
        raise EncodingFailed(
            f"{source.name} could not be made into {target.name}: {error}"
        ) from error


def _encode(source: Path, part: Path, encoder: _Encoder, bitrate: int) -> None:
    import av

    with wave.open(str(source), "rb") as wav:
        rate, tracks = wav.getframerate(), wav.getnchannels()
        if wav.getsampwidth() != 2 or tracks not in (1, 2):
            raise ValueError("it is no WAV of 16-bit samples in one or two tracks")
        layout = "stereo" if tracks == 2 else "mono"
        to_rate = rate if rate in (encoder.rates or (rate,)) else 48_000
        resampler = av.AudioResampler(format=encoder.sample_format, layout=layout, rate=to_rate)
        with av.open(str(part), "w", format=encoder.container) as container:
            stream = cast(
                "AudioStream",
                container.add_stream(
                    encoder.codec, rate=to_rate, layout=layout, options=dict(encoder.options)
                ),
            )
            if encoder.lossy:
                stream.bit_rate = bitrate
            chunk = max(1, round(rate * CHUNK_S))
            position = 0
            while data := wav.readframes(chunk):
                samples = np.frombuffer(data, "<i2").astype(np.int16).reshape(1, -1)
                frame = av.AudioFrame.from_ndarray(samples, format="s16", layout=layout)
                frame.sample_rate = rate
                frame.pts = position
                position += frame.samples
                for ready in resampler.resample(frame):
                    container.mux(stream.encode(ready))
            if position:
                for ready in resampler.resample(None):
                    container.mux(stream.encode(ready))
            container.mux(stream.encode(None))


SUFFIXES = (".wav", *ENCODED)
"""Endings of a recording's file, in lower case."""


class Recording(os.PathLike[str]):
    """Stereo recording of a call, the caller on the left (0600); of `Call.record`.

    ``await recording`` waits until it begins. It ends with the call, or before:

    >>> async with call.record("call.wav"):
    ...     await call.say("This part is kept.")

    A WAV can be played while it grows; other formats are encoded from one at the end.
    """

    def __init__(
        self, path: Path, stop: Callable[[Recording], None], *, bitrate: int = 32_000
    ) -> None:
        self.path = path
        """The file that is wanted."""
        self.began_at: float | None = None
        """Time of the first sample, seconds of the monotonic clock; None = not begun."""
        self.error: Exception | None = None
        """Why there is no recording, or not all of it; None while all is well."""
        self._stop = stop
        self._bitrate = bitrate
        self._begun = asyncio.Event()
        self._finishing: asyncio.Task[tuple[Path, ...]] | None = None

    @property
    def wav(self) -> Path:
        return wav_path(self.path)

    @property
    def encodes(self) -> bool:
        return self.wav != self.path

    async def stop(self) -> Path:
        """End the recording, and return its complete file; idempotent.

        Raises the `OSError` of a failed write, or CallError where it never began or could not be
        encoded; the WAV is kept then.
        """
        self._stop(self)
        files = await self.finished()
        if self.error is not None:
            raise self.error
        return files[0]

    def __await__(self) -> Generator[Any, None, Recording]:
        return self._wait().__await__()

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"Recording({self.path.name!r})"

    async def __aenter__(self) -> Recording:
        return await self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # --- for the call

    def begun(self, now: float) -> None:
        self.began_at = now
        self._begun.set()

    def failed(self, error: Exception) -> None:
        self.error = self.error or error
        self._begun.set()

    async def finished(self) -> tuple[Path, ...]:
        if self._finishing is None:
            self._finishing = asyncio.create_task(self._finish(), name=f"finish {self!r}")
        return await asyncio.shield(self._finishing)

    # --- inside

    async def _wait(self) -> Recording:
        await self._begun.wait()
        if self.error is not None:
            raise self.error
        return self

    async def _finish(self) -> tuple[Path, ...]:
        if self.began_at is None:
            return ()
        if not self.encodes:
            return (self.path,)
        try:
            await asyncio.to_thread(write_encoded, self.wav, self.path, bitrate=self._bitrate)
        except EncodingFailed as error:
            self.error = CallError(
                f"The recording was not encoded: {error}.",
                remedy=f"Its sound is in {self.wav.name}.",
            )
            return (self.wav,)
        self.wav.unlink(missing_ok=True)
        return (self.path,)


def wav_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.wav") if path.suffix.lower() in ENCODED else path


def validated_path(path: Path) -> Path:
    """Return the path, if a recording can be written there.

    Raises ValueError (suffix), OSError (missing folder), CallError (no encoder).
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(
            f"path={path.name!r}: a recording's file ends in {', '.join(SUFFIXES)}, which says its "
            "format"
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to record into.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder.")
    if path.suffix.lower() != ".wav":
        try:
            require_pyav()
        except EncodingFailed as error:
            raise CallError(str(error), remedy="Record into a .wav file, or install it.") from None
    return path
