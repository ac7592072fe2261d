"""Recordings in the page: peaks for the waveform, sound for its player."""

from __future__ import annotations

import base64
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.pcm import Pcm
from qwen3tts_codecs.wav import DamagedWav, NotWav, WavFile
from qwen3tts_phone.records.recording import EncodingFailed, require_pyav, write_encoded

MAX_FILE_BYTES: Final = 128_000_000
"""Above an hour of stereo at 8 kHz; a larger recording is linked, and not drawn."""
BINS_PER_S: Final = 25
MAX_BINS: Final = 3000
FULL_SCALE: Final = 255
BIT_RATE: Final = 32_000
"""Of both tracks; a minute is a quarter of a megabyte."""


class NoRecording(Exception):
    """Reason why a recording cannot be shown, in a sentence."""


@dataclass(frozen=True, slots=True)
class Waveform:
    """Peaks of both sides."""

    seconds: float
    peaks: NDArray[np.uint8]
    """Shape [2, bins]: caller and agent; the largest amplitude, square root, 0 to 255."""

    def encoded(self) -> str:
        """Return the peaks in base64, the caller's first."""
        return base64.b64encode(self.peaks.tobytes()).decode("ascii")


def read_stereo(path: Path) -> tuple[Pcm, int]:
    """Return samples, shape [n, 2], and their rate. Raises NoRecording.

    A file that ends early, as of a call under way, has what was saved.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise NoRecording("The recording is too large for the page.")
        wav = WavFile.parse(path.read_bytes())
    except OSError as error:
        raise NoRecording(f"The recording cannot be read: {error.strerror}.") from error
    except (NotWav, DamagedWav) as error:
        why = str(error) or "it is no WAV file"
        raise NoRecording(f"The recording cannot be read: {why}.") from error
    if wav.channels != 2 or wav.bits != 16 or not wav.rate:
        raise NoRecording("The recording is no stereo file of 16 bits.")
    if not wav.frames:
        raise NoRecording("The recording is empty.")
    return np.frombuffer(wav.data, "<i2").reshape(-1, 2), wav.rate


def waveform(path: Path) -> Waveform:
    """Return the peaks of a recording. Raises NoRecording."""
    samples, rate = read_stereo(path)
    seconds = len(samples) / rate
    bins = max(1, min(MAX_BINS, len(samples), round(seconds * BINS_PER_S)))
    starts = np.arange(bins) * len(samples) // bins
    high = np.maximum.reduceat(samples, starts).astype(np.float64)
    low = np.minimum.reduceat(samples, starts).astype(np.float64)
    loudest = np.maximum(high, -low).T / 32768
    # The square root shows telephone speech, mostly below -20 dBFS, at half the height.
    peaks = np.rint(np.sqrt(np.clip(loudest, 0.0, 1.0)) * FULL_SCALE).astype(np.uint8)
    return Waveform(seconds, np.ascontiguousarray(peaks))


def embedded(path: Path) -> str:
    """Return a recording as a data address: Ogg Opus, or WAV without PyAV. Raises NoRecording."""
    try:
        require_pyav()
    except EncodingFailed:
        return _data_address("audio/wav", path)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "call.ogg"
        try:
            write_encoded(path, target, bitrate=BIT_RATE)
        except EncodingFailed as error:
            raise NoRecording("The recording cannot be encoded.") from error
        return _data_address("audio/ogg", target)


def _data_address(kind: str, path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NoRecording(f"The recording cannot be read: {error.strerror}.") from error
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


def relative_address(path: Path, page: Path) -> str:
    """Return the address of a recording as seen from a page's folder."""
    return quote(os.path.relpath(path.resolve(), page.resolve().parent))
