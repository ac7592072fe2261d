"""RTP payload formats (RFC 3551, RFC 7587) and codec facts.

G.722 and Opus predict each frame from the ones before: an `Encoder` or `Decoder` belongs to one
stream in one direction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from qwen3tts_codecs.errors import BadSamples, UnknownPayload, UnsupportedPtime
from qwen3tts_codecs.pcm import Pcm, check_samples

MIN_PTIME_MS: Final = 10
MAX_PTIME_MS: Final = 60
PTIMES_MS: Final = (10, 20, 30, 40, 50, 60)
"""Packet times that can be sent."""


class Encoder(Protocol):
    """Encoder of frames of one length."""

    @property
    def frame_samples(self) -> int: ...

    @property
    def delay_samples(self) -> int:
        """Delay of the decoded sound, at the format's ``sample_hz``."""

    def encode(self, pcm: Pcm) -> bytes:
        """Encode one frame, shape [frame_samples]. Raises BadSamples."""


class Decoder(Protocol):
    """Decoder of one stream of payloads."""

    def decode(self, data: bytes) -> Pcm:
        """Decode one payload, shape [n], at ``sample_hz``. Raises BadPayload."""


class PlainEncoder:
    """`Encoder` of a stateless format."""

    delay_samples = 0

    def __init__(self, frame_samples: int, encode: Callable[[Pcm], bytes]) -> None:
        self.frame_samples = frame_samples
        self._encode = encode

    def encode(self, pcm: Pcm) -> bytes:
        check_frame(pcm, self.frame_samples, "PlainEncoder")
        return self._encode(pcm)


class PlainDecoder:
    """`Decoder` of a stateless format."""

    def __init__(self, decode: Callable[[bytes], Pcm]) -> None:
        self._decode = decode

    def decode(self, data: bytes) -> Pcm:
        return self._decode(data)


def check_frame(pcm: Pcm, frame_samples: int, where: str) -> None:
    """Raise BadSamples, naming ``where``, unless ``pcm`` is one frame."""
    check_samples(pcm, where)
    if len(pcm) != frame_samples:
        raise BadSamples(f"{where}: a frame has {frame_samples} samples, not {len(pcm)}")


@dataclass(frozen=True)
class Payload:
    """Payload format: its names in SDP, and its coders."""

    name: str
    """Encoding name of the rtpmap attribute."""
    payload_type: int
    """Static type of RFC 3551 table 4, or the agreed dynamic one."""
    clock_hz: int
    """Rate of the RTP timestamp."""
    sample_hz: int
    """Rate of the samples."""
    sample_bytes: int
    """Bytes of a sample; 0 = the format is compressed by frame."""
    silence: bytes
    """One sample of silence; empty for a format compressed by frame."""
    encode: Callable[[Pcm], bytes] = field(repr=False, compare=False)
    """Encode samples, shape [n]. Raises BadSamples. A predictive format takes one frame, as the
    first of a stream; for streams use `encoder`."""
    decode: Callable[[bytes], Pcm] = field(repr=False, compare=False)
    """Decode to samples, shape [n]. Raises BadSamples or BadPayload."""
    make_encoder: Callable[[int], Encoder] | None = field(default=None, repr=False, compare=False)
    """Factory by samples of a frame; None = the format is stateless."""
    make_decoder: Callable[[], Decoder] | None = field(default=None, repr=False, compare=False)
    make_silence: Callable[[int], bytes] | None = field(default=None, repr=False, compare=False)
    """Silent frame of a compressed format by its duration in milliseconds."""
    ptimes_ms: tuple[int, ...] = ()
    """Possible packet times; empty = any that holds whole samples."""
    overlapped: bool = False
    """True if decoders fade by themselves over a discontinuity."""

    @property
    def static(self) -> bool:
        """True if the type needs no rtpmap (RFC 3551 section 6)."""
        return self.payload_type < 96

    @property
    def stateful(self) -> bool:
        """True if frames are predicted from earlier ones."""
        return self.make_encoder is not None

    def with_type(self, payload_type: int) -> Payload:
        """Return the format under an agreed type. Raises UnknownPayload."""
        if not 0 <= payload_type <= 127:
            raise UnknownPayload(f"payload type {payload_type} is not between 0 and 127")
        return replace(self, payload_type=payload_type)

    def encoder(self, ptime_ms: int = 20) -> Encoder:
        """Return an encoder for one stream. Raises UnsupportedPtime, CodecMissing."""
        samples = self.frame_samples(ptime_ms)
        if self.make_encoder is None:
            return PlainEncoder(samples, self.encode)
        return self.make_encoder(samples)

    def decoder(self) -> Decoder:
        """Return a decoder for one stream. Raises CodecMissing."""
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
        return self.clock_hz * ptime_ms // 1000

    def frame_bytes(self, ptime_ms: int) -> int:
        """Bytes in ``ptime_ms``; of Opus, silent ones. Raises UnsupportedPtime."""
        samples = self.frame_samples(ptime_ms)
        return samples * self.sample_bytes or len(self.silent_frame(ptime_ms))

    def silent_frame(self, ptime_ms: int) -> bytes:
        """Return a silent frame. Raises UnsupportedPtime."""
        samples = self.frame_samples(ptime_ms)
        return self.silence * samples if self.make_silence is None else self.make_silence(ptime_ms)


@dataclass(frozen=True, slots=True)
class CodecRating:
    """E-model parameters, ITU-T G.113 (11/2007) appendix I."""

    ie: float
    bpl: float
    """Packet-loss robustness factor; higher is better."""
    delay_ms: float = 0.0
    """Look-ahead and framing beyond the packet itself."""


UNRATED: Final = CodecRating(11.0, 19.0)
"""G.729A (G.113 appendix I), for a codec without figures."""


@dataclass(frozen=True, slots=True)
class CodecSpec:
    """Facts of one codec: a row of `qwen3tts_codecs.table.CODECS`."""

    payload: Payload
    """Encoding name, rates, coders, silent frame."""
    offered_type: int | None = None
    """Dynamic payload type of our offers; None = the payload's own, static one."""
    channels: int = 1
    """As in rtpmap; always 2 for Opus (RFC 7587 section 7)."""
    fmtp: str = ""
    configured: Callable[[Payload, str], Payload] | None = None
    """Applies the far end's fmtp to the payload; None = no parameters."""
    rating: CodecRating = UNRATED
    comfort_noise: bool = False
    """True if comfort noise (RFC 3389) of 8 kHz goes with it."""
    in_sdp: bool = True
    """True if telephone calls can negotiate it."""
    in_browsers: bool = False
    """True if WebRTC browsers have it (RFC 7874 section 3)."""
    aliases: tuple[str, ...] = ()
    """Names that carriers of media streams give it, in lower case, without ``audio/x-``."""

    @property
    def name(self) -> str:
        return self.payload.name

    @property
    def payload_type(self) -> int:
        return self.payload.payload_type if self.offered_type is None else self.offered_type

    @property
    def clock_hz(self) -> int:
        return self.payload.clock_hz

    @property
    def static(self) -> bool:
        return self.payload.static

    @property
    def ptimes_ms(self) -> tuple[int, ...]:
        return self.payload.ptimes_ms or PTIMES_MS

    @property
    def rtpmap(self) -> str:
        channels = f"/{self.channels}" if self.channels > 1 else ""
        return f"{self.name}/{self.clock_hz}{channels}"

    def agreed(self, payload_type: int, fmtp: str = "") -> Payload:
        """Return the payload of an agreed type and ``fmtp``."""
        payload = self.payload
        if payload_type != payload.payload_type:
            payload = payload.with_type(payload_type)
        return payload if self.configured is None else self.configured(payload, fmtp)
