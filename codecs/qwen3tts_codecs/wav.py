"""WAV files in memory: reader, header and writer. Safe for untrusted bytes.

Source: Microsoft, Multimedia Programming Interface 1.0 (RIFF WAVE) and WAVEFORMATEXTENSIBLE.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.g711 import decode_alaw, decode_ulaw
from qwen3tts_codecs.pcm import Pcm, to_bytes

HEADER_BYTES: Final = 44
UNKNOWN_LENGTH: Final = 0xFFFFFFFF
"""Length field of a stream whose end is not known."""

_PCM, _FLOAT, _ALAW, _ULAW, _EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
# The rest of the sub-format's GUID, behind the two bytes that are a format tag.
_GUID_REST: Final = bytes.fromhex("000000001000800000aa00389b71")
_BITS: Final = {
    _PCM: (8, 16, 24, 32),
    _FLOAT: (32, 64),
    _ALAW: (8,),
    _ULAW: (8,),
}


class NotWav(Exception):
    """Not a WAV, or an unsupported kind; another reader may know it."""


class DamagedWav(Exception):
    """WAV that contradicts itself."""


@dataclass(frozen=True, slots=True)
class WavFile:
    """Header of a WAV file and location of its samples."""

    rate: int
    """Hertz, as stated: any 32-bit number."""
    channels: int
    """At least 1."""
    bits: int
    tag: int
    """PCM, float, mu-law or A-law."""
    data: memoryview
    """Whole frames only."""

    @property
    def frames(self) -> int:
        return len(self.data) // (self.channels * self.bits // 8)

    @classmethod
    def parse(cls, data: bytes) -> WavFile:
        """Find header and samples; NotWav, DamagedWav.

        A data chunk longer than the file (written to a pipe) ends with the file.
        """
        view = memoryview(data)
        if len(data) < 12 or data[:4] != b"RIFF" or data[8:12] != b"WAVE":
            raise NotWav
        layout: tuple[int, int, int, int] | None = None
        at = 12
        while at + 8 <= len(view):
            name, size = bytes(view[at : at + 4]), int.from_bytes(view[at + 4 : at + 8], "little")
            body = view[at + 8 : at + 8 + size]
            if name == b"fmt ":
                layout = _layout(body)
            elif name == b"data":
                if layout is None:
                    raise DamagedWav("its samples come before their format")
                tag, channels, rate, bits = layout
                whole = len(body) - len(body) % (channels * bits // 8)
                return cls(rate, channels, bits, tag, body[:whole])
            # Chunks are padded to an even length.
            at += 8 + size + size % 2
        raise DamagedWav("it holds no samples")

    @property
    def seconds(self) -> float:
        return self.frames / self.rate if self.rate else 0.0

    def samples(self) -> NDArray[np.float32]:
        """Return the samples, shape [frames, channels], ±1."""
        flat = _decode(self.tag, self.bits, self.data)
        return flat.reshape(self.frames, self.channels)

    def mono(self) -> Pcm:
        """Return the mean of the channels, shape [frames]."""
        mean = np.nan_to_num(self.samples()).mean(axis=1, dtype=np.float64)
        mono: Pcm = np.clip(np.rint(mean * 32768), -32768, 32767).astype(np.int16)
        return mono


def _layout(body: memoryview) -> tuple[int, int, int, int]:
    if len(body) < 16:
        raise DamagedWav("its format chunk is cut off")
    tag, channels, rate, _, block, bits = struct.unpack_from("<HHIIHH", body)
    if tag == _EXTENSIBLE:
        if len(body) < 40:
            raise DamagedWav("its format chunk is cut off")
        if body[26:40] != _GUID_REST:
            raise NotWav
        tag = int.from_bytes(body[24:26], "little")
    if bits not in _BITS.get(tag, ()):
        raise NotWav
    if not channels:
        raise DamagedWav("it has 0 channels")
    if block != channels * bits // 8:
        raise DamagedWav(f"{channels} channels of {bits} bits are not {block} bytes")
    return tag, channels, rate, bits


def _decode(tag: int, bits: int, data: memoryview) -> NDArray[np.float32]:
    if tag == _FLOAT:
        # What is beyond float32 becomes infinite, which the reader of the samples refuses.
        with np.errstate(over="ignore", invalid="ignore"):
            return np.frombuffer(data, f"<f{bits // 8}").astype(np.float32)
    if tag in (_ULAW, _ALAW):
        return from_integers(decode_ulaw(data) if tag == _ULAW else decode_alaw(data))
    if bits == 24:
        # Three bytes into the upper three of four.
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        return from_integers(wide.view("<i4")[:, 0])
    return from_integers(np.frombuffer(data, "u1" if bits == 8 else f"<i{bits // 8}"))


def from_integers(samples: NDArray[Any]) -> NDArray[np.float32]:
    """Scale integer samples to ±1; unsigned ones are centred first.

    Exact up to 24 bits.
    """
    info = np.iinfo(samples.dtype)
    half = 2.0 ** (info.bits - 1)
    middle = half if info.min == 0 else 0.0
    scaled: NDArray[np.float32] = ((samples.astype(np.float64) - middle) / half).astype(np.float32)
    return scaled


def wav_header(data_bytes: int | None, rate_hz: int, channels: int = 1) -> bytes:
    """Return the 44 bytes before ``data_bytes`` of 16-bit PCM; None: length not known yet."""
    riff = UNKNOWN_LENGTH if data_bytes is None else HEADER_BYTES - 8 + data_bytes
    if data_bytes is None or riff > UNKNOWN_LENGTH:
        data_bytes = riff = UNKNOWN_LENGTH
    block = channels * 2
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        *(b"RIFF", riff, b"WAVE"),
        *(b"fmt ", 16, _PCM, channels, rate_hz, rate_hz * block, block, 16),
        *(b"data", data_bytes),
    )


def wav_bytes(pcm: Pcm | bytes, rate_hz: int) -> bytes:
    """Return a WAV file of one channel; ``pcm``: samples [n], or s16le bytes."""
    data = pcm if isinstance(pcm, bytes) else to_bytes(pcm)
    return wav_header(len(data), rate_hz) + data
