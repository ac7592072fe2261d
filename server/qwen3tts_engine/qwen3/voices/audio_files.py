"""Audio files: WAV read here, other formats through PyAV in a process of their own.

Safe for untrusted bytes. Source: Microsoft, Multimedia Programming Interface 1.0 (RIFF WAVE) and
WAVEFORMATEXTENSIBLE.
"""

from __future__ import annotations

import logging
import struct
import subprocess
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.g711 import decode_alaw, decode_ulaw
from qwen3tts_engine.qwen3.voices import audio_worker
from qwen3tts_wire.child.process import command, environment
from qwen3tts_wire.errors import BadRequest

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
    """Of one sample."""
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

    def samples(self) -> NDArray[np.float32]:
        flat = _decode(self.tag, self.bits, self.data)
        return flat.reshape(self.frames, self.channels)


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


log = logging.getLogger(__name__)

TIMEOUT_S = 60.0
"""Bound of the decoder process."""


def decode_foreign(data: bytes, max_s: float) -> tuple[NDArray[np.float32], int]:
    """Decode the first audio track of a file: mono samples [n] and their rate in hertz.

    In a process of its own, since decoders in C crash on hostile files. BadRequest if PyAV is
    missing or fails; TooLong above ``max_s``.
    """
    module = audio_worker.__name__
    try:
        done = subprocess.run(
            command(module, repr(max_s)),
            input=data,
            capture_output=True,
            timeout=TIMEOUT_S,
            env={**environment(module), "OPENBLAS_NUM_THREADS": "1"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        log.warning("the audio decoder took more than %g s", TIMEOUT_S)
        raise _not_audio() from None
    except OSError as error:
        raise BadRequest(
            f"No process can be started to decode the recording: {error.strerror}.",
            remedy="Give a WAV file with 16 bits.",
        ) from None
    if done.returncode == audio_worker.NO_PYAV:
        raise BadRequest(
            "The reference recording is no WAV file, and other formats need the package PyAV.",
            remedy="Give a WAV file with 16 bits, or install PyAV: pip install av.",
        )
    if done.returncode == audio_worker.TOO_LONG:
        raise audio_worker.TooLong
    if done.returncode != 0:
        if done.returncode != audio_worker.NOT_AUDIO:
            log.warning("the audio decoder ended with status %d", done.returncode)
        raise _not_audio()
    samples = np.frombuffer(done.stdout, "<f4", offset=4).astype(np.float32)
    return samples, int.from_bytes(done.stdout[:4], "little")


def _not_audio() -> BadRequest:
    return BadRequest(
        "The reference recording is no audio file that can be read.",
        remedy="Give a WAV file with 16 bits, or MP3, Ogg, FLAC or M4A.",
    )
