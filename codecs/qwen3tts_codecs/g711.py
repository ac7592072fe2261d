"""G.711: mu-law (PCMU) and A-law (PCMA) of 16-bit samples.

Decoding is the table of ITU-T G.711 (tables 1 and 2, scaled to 16 bits). Encoding takes the
**nearest level**; a tie goes to the larger magnitude, and the sign bit is the sample's own: the
least error. The ITU tool (G.191) drops low bits first and picks a neighbouring level for 621 of the
65536 inputs in mu-law and 619 in A-law, farther off in 501 and 498 of them
(tests/codecs/test_g711.py).

Mu-law's 0x7F, "minus zero", decodes to 0, which encodes to 0xFF. A-law has no zero: 0 becomes +8,
0xD5.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.errors import BadSamples
from qwen3tts_codecs.payload import CodecRating, CodecSpec, Payload
from qwen3tts_codecs.pcm import Pcm, check_samples

ULAW_SILENCE: Final = 0xFF

ALAW_SILENCE: Final = 0xD5

_Codes = NDArray[np.uint8]


def _ulaw_levels() -> NDArray[np.int32]:
    """Magnitudes, shape [128], rising, 16 bits (G.711 table 2a, y_n)."""
    segment, step = np.divmod(np.arange(128), 16)
    levels: NDArray[np.int32] = ((((2 * step + 33) << segment) - 33) * 4).astype(np.int32)
    return levels


def _alaw_levels() -> NDArray[np.int32]:
    """Magnitudes, shape [128], rising, 16 bits (G.711 table 1a, y_n)."""
    segment, step = np.divmod(np.arange(128), 16)
    linear = 2 * step + 1
    curved = (2 * step + 33) << np.maximum(segment - 1, 0)
    levels: NDArray[np.int32] = (np.where(segment == 0, linear, curved) * 8).astype(np.int32)
    return levels


def _decode_table(levels: NDArray[np.int32], invert: int, positive: int) -> Pcm:
    """Return the sample of each code word, shape [256]."""
    codes = np.arange(256)
    magnitude = levels[(codes ^ invert) & 0x7F]
    table: Pcm = np.where((codes & 0x80) == positive, magnitude, -magnitude).astype(np.int16)
    table.flags.writeable = False
    return table


def _encode_table(levels: NDArray[np.int32], invert: int) -> _Codes:
    """Code word by a sample's uint16 view, shape [65536]."""
    middles = (levels[:-1] + levels[1:]) // 2
    samples = np.arange(65536).astype(np.uint16).view(np.int16).astype(np.int32)
    nearest = np.searchsorted(middles, np.abs(samples), side="right")
    table: _Codes = ((nearest | np.where(samples < 0, 0, 0x80)) ^ invert).astype(np.uint8)
    table.flags.writeable = False
    return table


# Bits that are inverted on the wire: G.711 section 3.2 (mu-law: all but the sign), 3.1 (A-law:
# the even ones). A set sign bit means plus in both.
_ULAW_INVERT = 0x7F
_ALAW_INVERT = 0x55
_ULAW_DECODE = _decode_table(_ulaw_levels(), _ULAW_INVERT, 0x80)
_ALAW_DECODE = _decode_table(_alaw_levels(), _ALAW_INVERT, 0x80)
_ULAW_ENCODE = _encode_table(_ulaw_levels(), _ULAW_INVERT)
_ALAW_ENCODE = _encode_table(_alaw_levels(), _ALAW_INVERT)


def encode_ulaw(pcm: Pcm) -> bytes:
    """Encode ``pcm``, shape [n]. Raises BadSamples."""
    check_samples(pcm, "encode_ulaw")
    return _ULAW_ENCODE.take(pcm.view(np.uint16)).tobytes()


def decode_ulaw(data: bytes | bytearray | memoryview) -> Pcm:
    """Decode n code words, shape [n]. Raises BadSamples."""
    return _ULAW_DECODE.take(_code_words(data, "decode_ulaw"))


def encode_alaw(pcm: Pcm) -> bytes:
    """Encode ``pcm``, shape [n]. Raises BadSamples."""
    check_samples(pcm, "encode_alaw")
    return _ALAW_ENCODE.take(pcm.view(np.uint16)).tobytes()


def decode_alaw(data: bytes | bytearray | memoryview) -> Pcm:
    """Decode n code words, shape [n]. Raises BadSamples."""
    return _ALAW_DECODE.take(_code_words(data, "decode_alaw"))


def _code_words(data: bytes | bytearray | memoryview, where: str) -> _Codes:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise BadSamples(f"{where}: code words come as bytes, not {type(data).__name__}")
    return np.frombuffer(data, np.uint8)


PCMU: Final = Payload("PCMU", 0, 8000, 8000, 1, bytes([ULAW_SILENCE]), encode_ulaw, decode_ulaw)
PCMA: Final = Payload("PCMA", 8, 8000, 8000, 1, bytes([ALAW_SILENCE]), encode_alaw, decode_alaw)
RATING: Final = CodecRating(0.0, 25.1)
"""With the packet loss concealment of G.711 Appendix I, random loss."""
SPECS: Final = (
    CodecSpec(
        PCMU,
        rating=RATING,
        comfort_noise=True,
        in_browsers=True,
        aliases=("mulaw", "ulaw", "pcmu", "g711u", "mu-law", "g711_ulaw"),
    ),
    CodecSpec(
        PCMA,
        rating=RATING,
        comfort_noise=True,
        in_browsers=True,
        aliases=("alaw", "pcma", "g711a", "a-law", "g711_alaw"),
    ),
)
