"""A WAV file as Ogg Opus, MP3 or FLAC by PyAV, as its ending says; both tracks are kept apart."""

from __future__ import annotations

import os
import wave
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

import numpy as np

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
    """Whether it has a bit rate."""
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
    """The file could not be made; the message says why. The WAV file is as it was."""


def need_pyav() -> None:
    """Raise EncodingFailed where the library for it is not installed."""
    try:
        import av  # noqa: F401
    except ImportError:
        raise EncodingFailed("PyAV is not installed; pip install 'mr_qwen3tts[phone]'.") from None


def write_encoded(source: Path, target: Path, *, bitrate: int = 32_000) -> None:
    """Encode ``source``, a WAV of 16-bit samples with one or two tracks, into ``target`` (0600).

    It is written under another name first, so a file with that name is always whole. Runs for
    about a hundredth of the sound's length; for a thread of its own.

    Args:
        source: the WAV file.
        target: the ending, one of ``ENCODED``, says the form.
        bitrate: bits a second of all tracks, where the form has one.

    Raises:
        EncodingFailed: the source is no such WAV, PyAV lacks the encoder, or the disk is full.
    """
    part = target.with_name(f"{target.name}.part")
    need_pyav()
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
