"""Audio formats, frames and levels."""

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
    """Encoding and rate; our protocol serves ``FORMATS``."""

    encoding: Annotated[str, Text(1, 64, printable=True)] = "pcm_s16le"
    """``pcm_s16le`` (little-endian), or ``mulaw``, ``alaw`` (ITU-T G.711)."""
    sample_rate: Annotated[int, Whole(RATE_MIN, RATE_MAX)] = 24000
    """Hertz."""

    @property
    def bytes_per_sample(self) -> int:
        return 2 if self.encoding == "pcm_s16le" else 1

    def samples(self, milliseconds: float) -> int:
        return round(milliseconds * self.sample_rate / 1000)

    @property
    def producible(self) -> bool:
        """True for ``FORMATS``, and linear PCM at any rate."""
        linear = self.encoding == "pcm_s16le" and RATE_MIN <= self.sample_rate <= RATE_MAX
        return linear or self in FORMATS

    def checked(self) -> AudioFormat:
        """Return it if served; raises BadRequest."""
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
"""Version, flags, reserved (0), context_no, offset: 16 bytes, little-endian."""
HEADER_VERSION = 1
CLAUSE_START = 0x01
"""Flag: the frame begins a clause."""


@dataclass(frozen=True)
class AudioFrame:
    """Binary message: consecutive samples of a context."""

    context_no: int
    offset: int
    """First sample's position in the context, samples."""
    data: bytes
    flags: int = 0

    def to_bytes(self) -> bytes:
        header = HEADER.pack(HEADER_VERSION, self.flags, 0, self.context_no, self.offset)
        return header + self.data

    @classmethod
    def from_bytes(cls, message: bytes) -> AudioFrame:
        """Parse a message; raises ProtocolError."""
        if len(message) < HEADER.size:
            raise ProtocolError(
                f"A binary message of {len(message)} bytes is shorter than its header."
            )
        version, flags, _, context_no, offset = HEADER.unpack_from(message)
        if version != HEADER_VERSION:
            raise ProtocolError(f"A binary message has header version {version}, not 1.")
        return cls(context_no, offset, message[HEADER.size :], flags)


AUDIBLE = 327
"""1 % of full scale, as for ``first_audible``."""
BLOCK_S = 0.0025
"""Step of the search for quiet places."""


def levels(data: bytes, form: AudioFormat) -> array[int]:
    """Return absolute samples, 0 to 32768; shape [samples]."""
    if form.encoding == "pcm_s16le":
        samples = array("h", data[: len(data) // 2 * 2])
        if sys.byteorder == "big":
            samples.byteswap()
        return array("H", map(abs, samples))
    table = _TABLES[form.encoding]
    return array("H", [table[code] for code in data])


def audible(data: bytes, form: AudioFormat) -> tuple[int, int]:
    """Return the first audible sample and the end of the last; 0, 0: silent."""
    loud = bytes(level > AUDIBLE for level in levels(data, form))
    return max(0, loud.find(1)), loud.rfind(1) + 1


def quietest(data: bytes, form: AudioFormat) -> int:
    """Return the quietest sample, the last of equals."""
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
