"""Linear samples as payloads: L16 of RTP (RFC 3551), and Asterisk's slin."""

from __future__ import annotations

from typing import Final

import numpy as np

from qwen3tts_codecs.errors import BadSamples, UnknownPayload
from qwen3tts_codecs.payload import CodecRating, CodecSpec, Payload
from qwen3tts_codecs.pcm import Pcm, PcmBytes, check_rate, check_samples, from_bytes, to_bytes


def _encode_l16(pcm: Pcm) -> bytes:
    # RFC 3551 section 4.5.11: network byte order, two's complement.
    check_samples(pcm, "L16")
    return pcm.astype(">i2").tobytes()


def _decode_l16(data: PcmBytes) -> Pcm:
    if len(data) % 2:
        raise BadSamples(f"L16: {len(data)} bytes are not whole 16-bit samples")
    return np.frombuffer(data, ">i2").astype(np.int16)


L16: Final = Payload("L16", 11, 44100, 44100, 2, bytes(2), _encode_l16, _decode_l16)
"""Linear samples at their static rate."""


def l16(sample_hz: int, payload_type: int) -> Payload:
    """Return L16 of a rate and dynamic type.

    Raises UnknownPayload, UnsupportedRate.
    """
    check_rate("sample_hz", sample_hz)
    # RFC 3551 section 3: 96 to 127 are free for what is agreed by other means.
    if not 96 <= payload_type <= 127:
        raise UnknownPayload(f"L16/{sample_hz} needs a dynamic type of 96 to 127: {payload_type}")
    return Payload("L16", payload_type, sample_hz, sample_hz, 2, bytes(2), _encode_l16, _decode_l16)


def slin(sample_hz: int) -> Payload:
    """Return Asterisk's slin, low byte first: ``L16LE``. Raises UnsupportedRate."""
    check_rate("sample_hz", sample_hz)
    # No payload type belongs to it: it is never sent in RTP.
    return Payload("L16LE", 127, sample_hz, sample_hz, 2, bytes(2), to_bytes, from_bytes)


# Uncompressed; robustness as G.711 with concealment.
RATING: Final = CodecRating(0.0, 25.1)
SPECS: Final = (
    CodecSpec(L16, rating=RATING, in_sdp=False),
    CodecSpec(slin(8000), rating=RATING, in_sdp=False),
)
