"""Audio formats, audio frames and the loudness of their samples."""

from __future__ import annotations

import struct
import sys
from array import array
from dataclasses import dataclass
from typing import Annotated

from qwen3tts_wire.errors import BadRequest, ProtocolError
from qwen3tts_wire.fields import Text, Whole

RATE_MIN, RATE_MAX = 8000, 48_000
"""Sample rates, hertz."""


@dataclass(frozen=True)
class AudioFormat:
    """Encoding and rate of samples. Our own protocol serves the pairs in ``FORMATS``."""

    encoding: Annotated[str, Text(1, 64, printable=True)] = "pcm_s16le"
    """``pcm_s16le``: two bytes a sample, little-endian; ``mulaw``, ``alaw``: one (ITU-T G.711)."""
    sample_rate: Annotated[int, Whole(RATE_MIN, RATE_MAX)] = 24000
    """Hertz."""

    @property
    def bytes_per_sample(self) -> int:
        return 2 if self.encoding == "pcm_s16le" else 1

    def samples(self, milliseconds: float) -> int:
        return round(milliseconds * self.sample_rate / 1000)

    @property
    def producible(self) -> bool:
        """Whether a server can make it: those in ``FORMATS``, and linear PCM at any rate."""
        linear = self.encoding == "pcm_s16le" and RATE_MIN <= self.sample_rate <= RATE_MAX
        return linear or self in FORMATS

    def checked(self) -> AudioFormat:
        """Return the format if it is served; else raise BadRequest."""
        if self not in FORMATS:
            raise BadRequest(
                f"The format {self.encoding} at {self.sample_rate} Hz is not served.",
                remedy="Served are: "
                + ", ".join(f"{each.encoding} {each.sample_rate}" for each in FORMATS)
                + ".",
            )
        return self


FORMATS = (
    AudioFormat("pcm_s16le", 24000),
    AudioFormat("pcm_s16le", 16000),
    AudioFormat("pcm_s16le", 8000),
    AudioFormat("mulaw", 8000),
    AudioFormat("alaw", 8000),
)
DEFAULT_FORMAT = FORMATS[0]

HEADER = struct.Struct("<BBHIQ")
"""Header version, flags, reserved (0), context_no, offset: 16 bytes, little-endian."""
HEADER_VERSION = 1
CLAUSE_START = 0x01
"""Flag: the first sample of this frame is the first of a clause."""


@dataclass(frozen=True)
class AudioFrame:
    """A binary message: consecutive samples of one context."""

    context_no: int
    offset: int
    """Position of the first sample in the context, in samples of its rate."""
    data: bytes
    flags: int = 0

    def to_bytes(self) -> bytes:
        header = HEADER.pack(HEADER_VERSION, self.flags, 0, self.context_no, self.offset)
        return header + self.data

    @classmethod
    def from_bytes(cls, message: bytes) -> AudioFrame:
        """Parse a binary message; raises ProtocolError."""
        if len(message) < HEADER.size:
            raise ProtocolError(
                f"A binary message of {len(message)} bytes is shorter than its header."
            )
        version, flags, _, context_no, offset = HEADER.unpack_from(message)
        if version != HEADER_VERSION:
            raise ProtocolError(f"A binary message has header version {version}, not 1.")
        return cls(context_no, offset, message[HEADER.size :], flags)


AUDIBLE = 327
"""1 % of full scale, as for the mark ``first_audible``; less is a pause."""
BLOCK_S = 0.0025
"""Quiet places are looked for in steps of this length."""


def levels(data: bytes, form: AudioFormat) -> array[int]:
    """Return the distance of each sample from zero, 0 to 32768; shape [samples]."""
    if form.encoding == "pcm_s16le":
        samples = array("h", data[: len(data) // 2 * 2])
        if sys.byteorder == "big":
            samples.byteswap()
        return array("H", map(abs, samples))
    table = _TABLES[form.encoding]
    return array("H", [table[code] for code in data])


def audible(data: bytes, form: AudioFormat) -> tuple[int, int]:
    """Return the first audible sample and the one after the last; both 0 where all is silent."""
    loud = bytes(level > AUDIBLE for level in levels(data, form))
    return max(0, loud.find(1)), loud.rfind(1) + 1


def quietest(data: bytes, form: AudioFormat) -> int:
    """Return the quietest sample, at which a cut is least audible; the last of equals."""
    height = levels(data, form)
    step = max(1, int(BLOCK_S * form.sample_rate))
    best, place = 1 << 16, len(height)
    for end in range(len(height), 0, -step):
        level = max(height[max(0, end - step) : end])
        if level < best:
            best, place = level, end
    return place


def _mulaw() -> list[int]:
    # ITU-T G.711, table 2a: inverted; 3 bits of segment, 4 of step, a bias of 33 in 14 bits.
    codes = [~code & 0x7F for code in range(256)]
    return [((((code & 15) << 3) + 132) << (code >> 4)) - 132 for code in codes]


def _alaw() -> list[int]:
    # ITU-T G.711, table 1a: every other bit inverted; 3 bits of segment, 4 of step, 13 bits.
    magnitudes = []
    for code in ((each ^ 0x55) & 0x7F for each in range(256)):
        segment, step = code >> 4, (code & 15) << 4
        magnitudes.append(step + 8 if segment == 0 else (step + 264) << (segment - 1))
    return magnitudes


_TABLES = {"mulaw": _mulaw(), "alaw": _alaw()}
