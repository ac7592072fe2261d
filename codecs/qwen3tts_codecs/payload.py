"""RTP payload formats (RFC 3551, RFC 7587): what a frame of samples is on the wire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from qwen3tts_codecs import g711
from qwen3tts_codecs.coder import Decoder, Encoder, PlainDecoder, PlainEncoder
from qwen3tts_codecs.errors import BadSamples, UnknownPayload, UnsupportedPtime
from qwen3tts_codecs.g722 import G722_HZ, G722_SILENCE, g722_decoder, g722_encoder
from qwen3tts_codecs.opus import (
    OPUS_CLOCK_HZ,
    OPUS_HZ,
    OPUS_PTIMES_MS,
    OPUS_SILENCE,
    OpusDecoder,
    OpusSettings,
    opus_encoder,
)
from qwen3tts_codecs.pcm import Pcm, PcmBytes, check_rate, check_samples, from_bytes, to_bytes

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
    """The encoding name of the rtpmap attribute, as it is commonly written."""
    payload_type: int
    """The static type of RFC 3551 table 4, or the dynamic one that was agreed."""
    clock_hz: int
    """Rate of the RTP timestamp."""
    sample_hz: int
    """Rate of the samples."""
    sample_bytes: int
    """Bytes of a sample; 0 = a sample has none of its own."""
    silence: bytes
    """One sample of silence; empty where a sample has no bytes of its own."""
    encode: Callable[[Pcm], bytes] = field(repr=False, compare=False)
    """Samples, shape [n], to bytes. Raises BadSamples. A format with memory takes one frame, and
    treats it as the first of a stream: for a stream there is `encoder`."""
    decode: Callable[[bytes], Pcm] = field(repr=False, compare=False)
    """The reverse. Raises BadSamples, or BadPayload for a format with memory."""
    make_encoder: Callable[[int], Encoder] | None = field(default=None, repr=False, compare=False)
    """From the samples of a frame; None = the format has no memory."""
    make_decoder: Callable[[], Decoder] | None = field(default=None, repr=False, compare=False)
    make_silence: Callable[[int], bytes] | None = field(default=None, repr=False, compare=False)
    """Of a format with memory: a silent frame, from its duration in milliseconds."""
    ptimes_ms: tuple[int, ...] = ()
    """The frame durations that there are; empty = any that holds whole samples."""
    overlapped: bool = False
    """Whether a decoder fades by itself from one frame to one that does not go on from it."""

    @property
    def static(self) -> bool:
        """Whether the payload type needs no rtpmap (RFC 3551 section 6)."""
        return self.payload_type < 96

    @property
    def stateful(self) -> bool:
        """Whether a frame is understood by what went before it."""
        return self.make_encoder is not None

    def with_type(self, payload_type: int) -> Payload:
        """Return the same format under the payload type that was agreed. Raises UnknownPayload."""
        if not 0 <= payload_type <= 127:
            raise UnknownPayload(f"payload type {payload_type} is not between 0 and 127")
        return replace(self, payload_type=payload_type)

    def encoder(self, ptime_ms: int = 20) -> Encoder:
        """Return an encoder for one stream of frames of ``ptime_ms``.

        Raises UnsupportedPtime; CodecMissing where the format's library is not installed.
        """
        samples = self.frame_samples(ptime_ms)
        if self.make_encoder is None:
            return PlainEncoder(samples, self.encode)
        return self.make_encoder(samples)

    def decoder(self) -> Decoder:
        """Return a decoder for one stream of packets. Raises CodecMissing."""
        return PlainDecoder(self.decode) if self.make_decoder is None else self.make_decoder()

    def frame_samples(self, ptime_ms: int) -> int:
        """Samples in a frame of ``ptime_ms``. Raises UnsupportedPtime."""
        if isinstance(ptime_ms, bool) or not isinstance(ptime_ms, int):
            raise UnsupportedPtime(f"ptime is a whole number of milliseconds, not {ptime_ms!r}")
        if not MIN_PTIME_MS <= ptime_ms <= MAX_PTIME_MS:
            raise UnsupportedPtime(
                f"ptime {ptime_ms} ms is outside {MIN_PTIME_MS} to {MAX_PTIME_MS} ms"
            )
        if self.ptimes_ms and ptime_ms not in self.ptimes_ms:
            known = ", ".join(map(str, self.ptimes_ms))
            raise UnsupportedPtime(f"{self.name} has no frames of {ptime_ms} ms; take {known}")
        samples, rest = divmod(self.sample_hz * ptime_ms, 1000)
        if rest:
            raise UnsupportedPtime(
                f"{ptime_ms} ms are not whole samples at {self.sample_hz} Hz; take 20 ms"
            )
        return samples

    def frame_ticks(self, ptime_ms: int) -> int:
        """How far the RTP timestamp moves in ``ptime_ms``."""
        return self.clock_hz * ptime_ms // 1000

    def frame_bytes(self, ptime_ms: int) -> int:
        """Bytes in a frame of ``ptime_ms``; of Opus, whose frames vary, those of a silent one.

        Raises UnsupportedPtime.
        """
        samples = self.frame_samples(ptime_ms)
        return samples * self.sample_bytes or len(self.silent_frame(ptime_ms))

    def silent_frame(self, ptime_ms: int) -> bytes:
        """A frame of silence, whatever went before it. Raises UnsupportedPtime."""
        samples = self.frame_samples(ptime_ms)
        return self.silence * samples if self.make_silence is None else self.make_silence(ptime_ms)


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


def slin(sample_hz: int) -> Payload:
    """Return linear samples at a rate, low byte first, as streams carry them that are no RTP.

    Asterisk calls it slin; its encoding name here is ``L16LE``. Raises UnsupportedRate.
    """
    check_rate("sample_hz", sample_hz)
    # No payload type belongs to it: it is never sent in RTP.
    return Payload("L16LE", 127, sample_hz, sample_hz, 2, bytes(2), to_bytes, from_bytes)


G722: Final = Payload(
    "G722",
    9,
    8000,  # RFC 3551 section 4.5.2: an old error that had to stay
    G722_HZ,
    0,
    b"",
    lambda pcm: g722_encoder(len(pcm)).encode(pcm),
    lambda data: g722_decoder().decode(data),
    make_encoder=g722_encoder,
    make_decoder=g722_decoder,
    make_silence=lambda ptime_ms: G722_SILENCE * (8 * ptime_ms),
)


def opus(payload_type: int = 96, settings: OpusSettings | None = None) -> Payload:
    """Return Opus under a dynamic payload type.

    Without ``settings`` it is Opus for a far end that has asked for nothing: without FEC. For one
    that has: `OpusSettings.for_far_end`. Raises UnknownPayload for a type that is not dynamic.
    """
    if not 96 <= payload_type <= 127:
        raise UnknownPayload(f"Opus needs a dynamic type of 96 to 127: {payload_type}")
    chosen = settings or OpusSettings().for_far_end("")

    def make_encoder(frame_samples: int) -> Encoder:
        return opus_encoder(frame_samples, chosen)

    return Payload(
        "opus",
        payload_type,
        OPUS_CLOCK_HZ,
        OPUS_HZ,
        0,
        b"",
        lambda pcm: make_encoder(len(pcm)).encode(pcm),
        lambda data: OpusDecoder().decode(data),
        make_encoder=make_encoder,
        make_decoder=OpusDecoder,
        make_silence=OPUS_SILENCE.__getitem__,
        ptimes_ms=OPUS_PTIMES_MS,
        overlapped=True,
    )


OPUS: Final = opus()
"""Opus with the usual settings; its payload type is whatever was agreed (`Payload.with_type`)."""

_BY_TYPE = {payload.payload_type: payload for payload in (PCMU, PCMA, G722, L16)}
_BY_NAME = {payload.name.upper(): payload for payload in (*_BY_TYPE.values(), OPUS)}


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
