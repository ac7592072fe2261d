"""Opus for speech (RFC 6716, RFC 7587), mono at 24 kHz."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from qwen3tts_codecs.av_coder import AvDecoder, AvEncoder, open_codec
from qwen3tts_codecs.errors import CodecError, UnknownPayload
from qwen3tts_codecs.payload import CodecRating, CodecSpec, Encoder, Payload
from qwen3tts_codecs.pcm import Pcm
from qwen3tts_codecs.resample import Resampler

OPUS_HZ: Final = 24000
"""Sample rate: super-wideband, up to 12 kHz."""
OPUS_CLOCK_HZ: Final = 48000
"""RTP clock, whatever the sample rate (RFC 7587 section 4.1)."""
OPUS_PTIMES_MS: Final = (10, 20, 40, 60)
"""Packet times of one Opus frame (RFC 6716 section 2.1.4)."""

MIN_BITRATE: Final = 6000
MAX_BITRATE: Final = 128_000
BANDWIDTHS_HZ: Final = (4000, 6000, 8000, 12_000)
"""RFC 6716 section 2, up to what 24 kHz holds."""

OPUS_SILENCE: Final = {
    10: bytes.fromhex("d0fffe"),
    20: bytes.fromhex("d8fffe"),
    40: bytes.fromhex("d9fffefffe"),
    60: bytes.fromhex("db03fffefffefffe"),
}
"""Silent frame by duration, in CELT mode: a decoder that comes from SILK continues it for 5 ms and
fades (RFC 6716 section 4.5). After silence in SILK mode the step is up to 3.7 times as large."""


@dataclass(frozen=True, slots=True)
class OpusSettings:
    """Encoder settings."""

    bitrate: int = 40_000
    """Bits a second. PESQ-WB in 20 and 40 ms frames, without FEC: 32,000 4.14 and 3.91; 40,000 4.28
    and 4.24."""
    lowdelay: bool = False
    """CELT only: 2.5 ms of look-ahead instead of 6.5, a third of the CPU; no FEC, PESQ-WB 3.48
    instead of 4.05."""
    fec: bool = True
    """In-band FEC (RFC 6716 section 2.1.7) where the far end asks for it; it costs bits: at 40,000
    PESQ-WB falls to 4.17 in 20 ms and 3.87 in 40 ms frames."""
    expected_loss_pct: int = 5
    """Loss that the encoder is prepared for."""
    constant: bool = False
    """Constant bitrate: packet sizes tell nothing of the speech."""
    bandwidth_hz: int = 12_000
    complexity: int = 6
    """0 to 10. PESQ-WB and microseconds a 20 ms frame: 3 3.64, 209; 5 3.82, 252; 6 4.05, 249; 8
    4.12, 338."""

    def __post_init__(self) -> None:
        if not MIN_BITRATE <= self.bitrate <= MAX_BITRATE:
            raise CodecError(f"bitrate={self.bitrate} is not {MIN_BITRATE} to {MAX_BITRATE}")
        if not 0 <= self.expected_loss_pct <= 100:
            raise CodecError(f"expected_loss_pct={self.expected_loss_pct} is not 0 to 100")
        if not 0 <= self.complexity <= 10:
            raise CodecError(f"complexity={self.complexity} is not 0 to 10")
        if self.bandwidth_hz not in BANDWIDTHS_HZ:
            known = ", ".join(map(str, BANDWIDTHS_HZ))
            raise CodecError(f"bandwidth_hz={self.bandwidth_hz} is not one of {known}")

    def for_far_end(self, parameters: str) -> OpusSettings:
        """Return settings limited by the far end's fmtp (RFC 7587 section 6.1)."""
        told = dict(each.strip().lower().partition("=")[::2] for each in parameters.split(";"))

        def number(name: str, otherwise: int) -> int:
            text = told.get(name, "").strip()
            return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else otherwise

        bitrate = min(self.bitrate, max(MIN_BITRATE, number("maxaveragebitrate", self.bitrate)))
        playback_hz = number("maxplaybackrate", 48_000)
        fitting = [each for each in BANDWIDTHS_HZ if 2 * each <= max(8000, playback_hz)]
        return replace(
            self,
            bitrate=bitrate,
            bandwidth_hz=min(self.bandwidth_hz, fitting[-1]),
            # The default is 0: a decoder that does not say so makes no use of it.
            fec=self.fec and number("useinbandfec", 0) == 1,
            constant=self.constant or number("cbr", 0) == 1,
        )


def opus_encoder(frame_samples: int, settings: OpusSettings) -> AvEncoder:
    options = {
        "application": "lowdelay" if settings.lowdelay else "voip",
        "frame_duration": f"{frame_samples * 1000 // OPUS_HZ}",
        "packet_loss": str(settings.expected_loss_pct),
        "fec": "1" if settings.fec else "0",
        "compression_level": str(settings.complexity),
        "vbr": "off" if settings.constant else "on",
        "cutoff": str(settings.bandwidth_hz),
    }
    context = open_codec("libopus", "w", OPUS_HZ, options, bit_rate=settings.bitrate)
    # The header's pre-skip, at 48 kHz (RFC 7845 section 5.1), is the encoder's look-ahead.
    ahead = int.from_bytes(context.extradata[10:12], "little") * OPUS_HZ // OPUS_CLOCK_HZ
    return AvEncoder(context, OPUS_HZ, frame_samples, ahead)


class OpusDecoder:
    """`Decoder` of Opus."""

    def __init__(self) -> None:
        self._decoder = AvDecoder("libopus", OPUS_CLOCK_HZ)
        self._resampler = Resampler(OPUS_CLOCK_HZ, OPUS_HZ)  # the library hands out 48 kHz

    def decode(self, data: bytes) -> Pcm:
        return self._resampler.push(self._decoder.decode(data))


def opus(payload_type: int = 96, settings: OpusSettings | None = None) -> Payload:
    """Return Opus under a dynamic payload type. Raises UnknownPayload.

    Default settings: those without fmtp, without FEC; else `OpusSettings.for_far_end`.
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


def _for_far_end(payload: Payload, fmtp: str) -> Payload:
    return opus(payload.payload_type, OpusSettings().for_far_end(fmtp))


SPECS: Final = (
    CodecSpec(
        OPUS,
        offered_type=111,
        channels=2,
        fmtp="maxplaybackrate=24000;maxaveragebitrate=40000;stereo=0;sprop-stereo=0;useinbandfec=0",
        configured=_for_far_end,
        # Not rated by the ITU-T: a working value, with the delay of RFC 6716 section 2.
        rating=CodecRating(0.0, 25.1, 6.5),
        in_browsers=True,
        aliases=("opus",),
    ),
)
