"""Linear 16-bit samples: bytes, arrays, frames of equal length."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.errors import BadSamples, UnsupportedRate

Pcm: TypeAlias = NDArray[np.int16]
"""Signed 16-bit linear samples in the machine's byte order, one channel, shape [n]."""

PcmBytes: TypeAlias = bytes | bytearray | memoryview

MIN_HZ: Final = 4000
MAX_HZ: Final = 192_000

_WIRE = np.dtype("<i2")
_NATIVE = np.dtype(np.int16)


def check_samples(pcm: Pcm, where: str) -> None:
    """Raise BadSamples, naming ``where``, unless int16 of shape [n]."""
    if not isinstance(pcm, np.ndarray):
        raise BadSamples(f"{where}: samples come as a numpy array of int16, not {_kind(pcm)}")
    if pcm.dtype != _NATIVE:
        raise BadSamples(f"{where}: samples are int16, not {pcm.dtype}; scale and convert them")
    if pcm.ndim != 1:
        raise BadSamples(f"{where}: one channel, shape [n], not shape {list(pcm.shape)}")


def check_rate(name: str, rate: int) -> None:
    """Raise UnsupportedRate unless within 4 to 192 kHz."""
    if isinstance(rate, bool) or not isinstance(rate, int):
        raise UnsupportedRate(f"{name} is a whole number of Hz, not {rate!r}")
    if not MIN_HZ <= rate <= MAX_HZ:
        raise UnsupportedRate(f"{name}={rate} is outside {MIN_HZ} to {MAX_HZ} Hz")


def from_bytes(data: PcmBytes) -> Pcm:
    """Return s16le samples, shape [n], read-only. Raises BadSamples."""
    if len(data) % 2:
        raise BadSamples(f"{len(data)} bytes are not whole 16-bit samples")
    samples: Pcm = np.frombuffer(data, _WIRE).astype(_NATIVE, copy=False)
    return samples


def to_bytes(pcm: Pcm) -> bytes:
    check_samples(pcm, "to_bytes")
    return pcm.astype(_WIRE, copy=False).tobytes()


def _kind(value: object) -> str:
    return type(value).__name__


class Int16Reader:
    """Reader of a stream of s16le bytes, cut anywhere."""

    def __init__(self) -> None:
        self._odd = b""

    @property
    def waiting(self) -> int:
        """Bytes of an incomplete sample: 0 or 1."""
        return len(self._odd)

    def push(self, data: PcmBytes) -> Pcm:
        """Return the complete samples, shape [n]. Raises BadSamples."""
        if isinstance(data, memoryview):
            data = data.tobytes()
        elif isinstance(data, bytearray):
            data = bytes(data)  # the caller may go on writing to it
        elif not isinstance(data, bytes):
            raise BadSamples(f"Int16Reader: s16le samples come as bytes, not {_kind(data)}")
        if self._odd:
            data = self._odd + data
            self._odd = b""
        if len(data) % 2:
            self._odd = data[-1:]
            data = data[:-1]
        return from_bytes(data)

    def flush(self) -> int:
        """End the stream; return the bytes dropped (0 or 1)."""
        left = len(self._odd)
        self._odd = b""
        return left


class LastFrame(NamedTuple):
    """Last frame of a stream, padded with silence."""

    samples: Pcm
    """Shape [frame_samples]."""
    real: int
    """Samples that are the stream's; at least 1."""


class Framer:
    """Cuts a stream of samples into frames of ``frame_samples``."""

    def __init__(self, frame_samples: int) -> None:
        if isinstance(frame_samples, bool) or not isinstance(frame_samples, int):
            raise BadSamples(f"frame_samples is a whole number, not {frame_samples!r}")
        if frame_samples < 1:
            raise BadSamples(f"a frame holds at least one sample, not {frame_samples}")
        self.frame_samples = frame_samples
        self._rest: Pcm = np.zeros(0, np.int16)

    @property
    def waiting(self) -> int:
        return len(self._rest)

    def push(self, pcm: Pcm) -> list[Pcm]:
        """Return the full frames, each of shape [frame_samples]."""
        return list(self.push_block(pcm))

    def push_block(self, pcm: Pcm) -> Pcm:
        """Return full frames as one array, shape [frames, frame_samples]."""
        check_samples(pcm, "Framer")
        owned = np.concatenate((self._rest, pcm))  # the caller may use its array again
        whole = len(owned) - len(owned) % self.frame_samples
        self._rest = owned[whole:].copy()
        return owned[:whole].reshape(-1, self.frame_samples)

    def flush(self) -> LastFrame | None:
        """End the stream; return the rest, padded, or None."""
        real = len(self._rest)
        if not real:
            return None
        samples = np.zeros(self.frame_samples, np.int16)
        samples[:real] = self._rest
        self._rest = self._rest[:0]
        return LastFrame(samples, real)
