"""RTP payload formats (RFC 3551): what a frame of samples is on the wire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from qwen3tts_codecs import g711
from qwen3tts_codecs.errors import BadSamples, UnknownPayload, UnsupportedPtime
from qwen3tts_codecs.pcm import Pcm, PcmBytes, check_rate, check_samples

MIN_PTIME_MS: Final = 10
MAX_PTIME_MS: Final = 60


def _encode_l16(pcm: Pcm) -> bytes:
    # RFC 3551 section 4.5.11: network byte order, two's complement.
    check_samples(pcm, "L16")
    return pcm.astype(">i2").tobytes()


def _decode_l16(data: PcmBytes) -> Pcm:
    if len(data) % 2:
        raise BadSamples(f"L16: {len(data)} bytes are not whole 16-bit samples")
    return np.frombuffer(data, ">i2").astype(np.int16)


@dataclass(frozen=True)
class Payload:
    """One payload format: its names in SDP and how samples become its bytes."""

    name: str
    """The encoding name of the rtpmap attribute, upper case."""
    payload_type: int
    """The static type of RFC 3551 table 4, or the dynamic one that was agreed."""
    clock_hz: int
    """Rate of the RTP timestamp."""
    sample_hz: int
    """Rate of the samples."""
    sample_bytes: int
    silence: bytes
    """One sample of silence."""
    encode: Callable[[Pcm], bytes] = field(repr=False, compare=False)
    """Samples, shape [n], to n * sample_bytes bytes. Raises BadSamples."""
    decode: Callable[[bytes], Pcm] = field(repr=False, compare=False)
    """The reverse. Raises BadSamples."""

    def frame_samples(self, ptime_ms: int) -> int:
        """Samples in a frame of ``ptime_ms``. Raises UnsupportedPtime."""
        if isinstance(ptime_ms, bool) or not isinstance(ptime_ms, int):
            raise UnsupportedPtime(f"ptime is a whole number of milliseconds, not {ptime_ms!r}")
        if not MIN_PTIME_MS <= ptime_ms <= MAX_PTIME_MS:
            raise UnsupportedPtime(
                f"ptime {ptime_ms} ms is outside {MIN_PTIME_MS} to {MAX_PTIME_MS} ms"
            )
        samples, rest = divmod(self.sample_hz * ptime_ms, 1000)
        if rest:
            raise UnsupportedPtime(
                f"{ptime_ms} ms are not whole samples at {self.sample_hz} Hz; take 20 ms"
            )
        return samples

    def frame_bytes(self, ptime_ms: int) -> int:
        """Bytes in a frame of ``ptime_ms``. Raises UnsupportedPtime."""
        return self.frame_samples(ptime_ms) * self.sample_bytes

    def silent_frame(self, ptime_ms: int) -> bytes:
        """A frame of silence. Raises UnsupportedPtime."""
        return self.silence * self.frame_samples(ptime_ms)


PCMU: Final = Payload(
    "PCMU", 0, 8000, 8000, 1, bytes([g711.ULAW_SILENCE]), g711.encode_ulaw, g711.decode_ulaw
)
PCMA: Final = Payload(
    "PCMA", 8, 8000, 8000, 1, bytes([g711.ALAW_SILENCE]), g711.encode_alaw, g711.decode_alaw
)
L16: Final = Payload("L16", 11, 44100, 44100, 2, bytes(2), _encode_l16, _decode_l16)
"""Linear samples, one channel, at their static rate of 44.1 kHz."""


def l16(sample_hz: int, payload_type: int) -> Payload:
    """Return linear samples at another rate and a dynamic payload type.

    Raises UnknownPayload for a type that is not dynamic, UnsupportedRate for a rate out of bounds.
    """
    check_rate("sample_hz", sample_hz)
    # RFC 3551 section 3: 96 to 127 are free for what is agreed by other means.
    if not 96 <= payload_type <= 127:
        raise UnknownPayload(f"L16/{sample_hz} needs a dynamic type of 96 to 127: {payload_type}")
    return Payload("L16", payload_type, sample_hz, sample_hz, 2, bytes(2), _encode_l16, _decode_l16)


_BY_TYPE = {payload.payload_type: payload for payload in (PCMU, PCMA, L16)}
_BY_NAME = {payload.name: payload for payload in _BY_TYPE.values()}


def payload_by_name(name: str) -> Payload:
    """Return the format of an rtpmap encoding name, any case. Raises UnknownPayload."""
    payload = _BY_NAME.get(name.upper())
    if payload is None:
        raise UnknownPayload(f"no payload format {name!r}; known: {', '.join(_BY_NAME)}")
    return payload


def payload_by_type(payload_type: int) -> Payload:
    """Return the format of a static payload type. Raises UnknownPayload."""
    payload = _BY_TYPE.get(payload_type)
    if payload is None:
        raise UnknownPayload(
            f"payload type {payload_type} is not static here; known: {sorted(_BY_TYPE)}"
        )
    return payload
