"""A WAV file as an Ogg Opus file, by PyAV: a tenth of the size, both tracks kept apart."""

from __future__ import annotations

import os
import wave
from pathlib import Path
from typing import Final

import numpy as np

OPUS_RATES: Final = (8000, 12000, 16000, 24000, 48000)
"""Sample rates that Opus takes (RFC 6716 section 2)."""
CHUNK_S: Final = 1.0


class NoOpusFile(Exception):
    """The file could not be made; the message says why. The WAV file is as it was."""


def need_opus() -> None:
    """Raise NoOpusFile where the library for it is not installed."""
    try:
        import av  # noqa: F401
    except ImportError:
        raise NoOpusFile("PyAV is not installed; pip install 'mr_qwen3tts[phone]'.") from None


def write_opus(source: Path, target: Path, *, bitrate: int = 32_000) -> None:
    """Encode ``source``, a WAV of 16-bit samples with one or two tracks, into ``target`` (0600).

    It is written under another name first, so a file with that name is always whole. Runs for
    about a hundredth of the sound's length; for a thread of its own.

    Raises:
        NoOpusFile: the source is no such WAV, PyAV lacks Opus, or the disk is full.
    """
    part = target.with_name(f"{target.name}.part")
    need_opus()
    import av

    try:
        part.unlink(missing_ok=True)  # of a process that was killed; it may have any mode
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        _encode(source, part, bitrate)
        part.rename(target)
    except (OSError, EOFError, ValueError, wave.Error, av.FFmpegError) as error:
        part.unlink(missing_ok=True)
        raise NoOpusFile(f"{source.name} could not be made into {target.name}: {error}") from error


def _encode(source: Path, part: Path, bitrate: int) -> None:
    import av

    with wave.open(str(source), "rb") as wav:
        rate, tracks = wav.getframerate(), wav.getnchannels()
        if wav.getsampwidth() != 2 or tracks not in (1, 2):
            raise ValueError("it is no WAV of 16-bit samples in one or two tracks")
        layout = "stereo" if tracks == 2 else "mono"
        to_rate = rate if rate in OPUS_RATES else 48_000
        resampler = av.AudioResampler(format="s16", layout=layout, rate=to_rate)
        with av.open(str(part), "w", format="ogg") as container:
            options = {"application": "voip", "frame_duration": "20"}
            stream = container.add_stream("libopus", rate=to_rate, layout=layout, options=options)
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
