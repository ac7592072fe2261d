"""Reference audio: decoding, checks, conversion to mono at 24 kHz.

Channels are averaged; a mono recording at 24 kHz is unchanged, bit for bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.wav import DamagedWav, NotWav, WavFile, from_integers
from qwen3tts_engine.qwen3.model.config import Samples
from qwen3tts_engine.qwen3.voices.audio_files import decode_foreign
from qwen3tts_engine.qwen3.voices.audio_worker import TooLong
from qwen3tts_wire.errors import BadRequest, LimitExceeded

_HALF_WIDTH = 96
"""Half the filter's length, in samples of the lower rate."""
_BETA = 12.0
"""Kaiser: -118 dB in the stop band, which begins at half the lower rate."""
_TRANSITION = 0.04
"""Transition band, in units of the lower rate, given width and beta."""
_POSITIONS = 1024
"""With more phases in the rates' common period, taps are interpolated linearly, with errors as low
as the stop band."""
_CHUNK = 8192
"""Outputs computed together; bounds the memory."""


def resample(samples: NDArray[np.float32], from_hz: int, to_hz: int) -> NDArray[np.float32]:
    """Resample [n] from ``from_hz`` to ``to_hz``: [ceil(n * to_hz / from_hz)].

    A linear-phase windowed sinc of studio quality, unlike the codecs' streaming Resampler.
    """
    if from_hz == to_hz:
        return samples
    common = math.gcd(from_hz, to_hz)
    up, down = to_hz // common, from_hz // common
    lower = min(from_hz, to_hz)
    half = _HALF_WIDTH * from_hz / lower
    reach = math.ceil(half)
    cut = lower / from_hz * (1 - _TRANSITION)
    steps = min(up, _POSITIONS)
    table = _taps(np.arange(steps + 1) / steps, reach, half, cut)
    padded = np.pad(samples.astype(np.float64), (reach, reach + 1))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach)
    count = -(-len(samples) * up // down)
    result = np.empty(count, np.float32)
    for start in range(0, count, _CHUNK):
        newest, phase = np.divmod(np.arange(start, min(start + _CHUNK, count)) * down, up)
        row, rest = np.divmod(phase * steps, up)
        taps = table[row]
        if steps < up:
            taps += (rest / up)[:, None] * (table[row + 1] - taps)
        # Window i begins ``reach`` inputs before input i; the taps begin one later.
        result[start : start + len(row)] = np.einsum("kt,kt->k", windows[newest + 1], taps)
    return result


def _taps(
    fraction: NDArray[np.float64], reach: int, half: float, cut: float
) -> NDArray[np.float64]:
    distance = np.arange(1 - reach, reach + 1) - fraction[:, None]
    inside = np.sqrt(np.maximum(0, 1 - (distance / half) ** 2))
    window = np.where(np.abs(distance) <= half, np.i0(_BETA * inside), 0)
    taps = np.sinc(cut * distance) * window
    normal: NDArray[np.float64] = taps / taps.sum(axis=1, keepdims=True)
    return normal


SAMPLE_RATE = 24_000
"""Hertz."""
RATE_MIN, RATE_MAX = 4_000, 192_000
"""Accepted rates, hertz."""
CHANNELS_MAX = 64
PEAK_MAX = 4.0
"""Above this, samples are not scaled to ±1; float recordings may exceed 1 slightly."""

Source = bytes | str | Path | tuple[NDArray[Any], int]
"""File bytes, path, or samples with their rate in hertz: [n] or [n, channels], floats in ±1 or
integers at their type's full scale."""


@dataclass(frozen=True, slots=True)
class ReferenceLimits:
    min_s: float = 1.0
    """Seconds; less does not identify a voice."""
    max_s: float = 60.0
    """Seconds; each takes 12.5 positions of every generation that continues it."""
    max_bytes: int = 32 << 20
    silence_dbfs: float = -60.0
    """Level (RMS about the mean) below which a recording is silent."""

    def __post_init__(self) -> None:
        if not 0.001 <= self.min_s <= self.max_s <= 3600.0:
            raise ValueError(
                f"min_s={self.min_s} and max_s={self.max_s} must be rising, within 0.001 to 3600"
            )


DEFAULT_LIMITS = ReferenceLimits()
CODEC_LIMITS = ReferenceLimits(
    min_s=0.001, max_s=600.0, max_bytes=256 << 20, silence_dbfs=-math.inf
)
"""For the codec alone: any audio, also silence."""


@dataclass(frozen=True, slots=True)
class Recording:
    samples: Samples
    """Mono [n], finite, in ±1."""
    rate: int
    """Hertz."""

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate

    def at(self, rate: int) -> Samples:
        return resample(self.samples, self.rate, rate)


def read_reference(source: Source, limits: ReferenceLimits = DEFAULT_LIMITS) -> Samples:
    return read_recording(source, limits).at(SAMPLE_RATE)


def read_recording(source: Source, limits: ReferenceLimits = DEFAULT_LIMITS) -> Recording:
    if isinstance(source, tuple):
        recording = _from_array(source, limits)
    elif not isinstance(source, bytes | str | Path):
        raise BadRequest(
            f"The reference recording is {type(source).__name__}.",
            remedy="Give a file's path or bytes, or a pair of a NumPy array and its rate in hertz.",
        )
    else:
        data = source if isinstance(source, bytes) else _read(Path(source), limits)
        recording = _from_bytes(data, limits)
    _check(recording, limits)
    return recording


def _read(path: Path, limits: ReferenceLimits) -> bytes:
    try:
        # Only plain files: a pipe or a device may never end.
        if not path.is_file():
            raise BadRequest(
                f"There is no file {path}.", remedy="Name a file with the reference recording."
            )
        with path.open("rb") as file:
            return file.read(limits.max_bytes + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadRequest(
            f"The reference recording could not be read: {reason}.",
            remedy="Check the path and its permissions.",
        ) from None


def _from_bytes(data: bytes, limits: ReferenceLimits) -> Recording:
    if len(data) > limits.max_bytes:
        raise LimitExceeded(
            f"The reference recording has more than {limits.max_bytes} bytes.",
            remedy=f"{limits.min_s:g} to {limits.max_s:g} s of one voice are enough; "
            "10 s are a good length.",
        )
    try:
        file = WavFile.parse(data)
    except NotWav:
        try:
            samples, rate = decode_foreign(data, limits.max_s)
        except TooLong:
            _too_long(limits.max_s, limits)
        return Recording(samples, _whole_rate(rate))
    except DamagedWav as error:
        raise BadRequest(
            f"The reference recording is a damaged WAV file: {error}.",
            remedy="Export it again, as WAV with 16 bits.",
        ) from None
    _check_shape(file.frames, file.channels, file.rate, limits)
    return Recording(_mono(file.samples()), file.rate)


def _from_array(source: tuple[NDArray[Any], int], limits: ReferenceLimits) -> Recording:
    if len(source) != 2 or not isinstance(source[0], np.ndarray):
        raise BadRequest(
            "The reference recording is no pair of samples and rate.",
            remedy="Give a NumPy array and its rate in hertz.",
        )
    array, rate = source
    if array.ndim not in (1, 2) or array.dtype.kind not in "fiu":
        raise BadRequest(
            f"The reference samples are {array.dtype} of shape {array.shape}.",
            remedy="Give floats or integers of shape [samples] or [samples, channels].",
        )
    rate = _whole_rate(rate)
    frames, channels = array.shape if array.ndim == 2 else (len(array), 1)
    if channels > CHANNELS_MAX >= frames:
        raise BadRequest(
            f"The reference samples have {channels} channels.",
            remedy="Shape [samples, channels] is expected; transpose the array.",
        )
    _check_shape(frames, channels, rate, limits)
    if array.dtype.kind == "f":
        # What is beyond float32 becomes infinite and is refused as such.
        with np.errstate(over="ignore"):
            samples = array.astype(np.float32)
    else:
        samples = from_integers(array)
    return Recording(_mono(samples.reshape(frames, channels)), rate)


def _mono(samples: Samples) -> Samples:
    if samples.shape[1] == 1:
        return samples[:, 0]
    with np.errstate(over="ignore", invalid="ignore"):
        mono: Samples = samples.mean(axis=1, dtype=np.float32)
    return mono


def _whole_rate(rate: object) -> int:
    whole = int(rate) if isinstance(rate, (int, np.integer)) else 0
    if not RATE_MIN <= whole <= RATE_MAX:
        shown = rate if isinstance(rate, (int, float, np.number)) else type(rate).__name__
        raise BadRequest(
            f"The reference recording's rate is {shown}.",
            remedy=f"Rates from {RATE_MIN} to {RATE_MAX} Hz are taken.",
        )
    return whole


def _check_shape(frames: int, channels: int, rate: int, limits: ReferenceLimits) -> None:
    _whole_rate(rate)
    if not 1 <= channels <= CHANNELS_MAX:
        raise BadRequest(
            f"The reference recording has {channels} channels.",
            remedy=f"Give a recording of 1 to {CHANNELS_MAX} channels.",
        )
    if frames > limits.max_s * rate:
        _too_long(frames / rate, limits)


def _too_long(seconds: float, limits: ReferenceLimits) -> NoReturn:
    raise LimitExceeded(
        f"The reference recording has {seconds:.1f} s or more; at most {limits.max_s:g} s are "
        "taken.",
        remedy="Cut out a part in which the voice speaks; 10 s are a good length.",
    )


def _check(recording: Recording, limits: ReferenceLimits) -> None:
    samples = recording.samples
    if recording.seconds < limits.min_s:
        raise BadRequest(
            f"The reference recording has {recording.seconds:.2f} s; at least {limits.min_s:g} s "
            "are needed.",
            remedy="Give a longer recording; 10 s are a good length.",
        )
    if not np.isfinite(samples).all():
        raise BadRequest(
            "The reference recording holds samples that are not finite.",
            remedy="Export it again; no sample may be NaN or infinite.",
        )
    peak = float(np.abs(samples).max())
    if peak > PEAK_MAX:
        raise BadRequest(
            f"The reference samples reach {peak:.0f}; full scale is 1.",
            remedy="Divide them by their full scale (32768 for 16 bits), or give integers.",
        )
    level = float(samples.std(dtype=np.float64))
    level_dbfs = 20 * math.log10(level) if level else -math.inf
    if level_dbfs < limits.silence_dbfs:
        raise BadRequest(
            f"The reference recording is silent: its level is {level_dbfs:.0f} dBFS.",
            remedy="Give a recording with audible speech.",
        )
