"""Opus for speech on a call (RFC 6716, RFC 7587): one channel, of 24 kHz."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from qwen3tts_codecs.av_coder import AvDecoder, AvEncoder, open_codec
from qwen3tts_codecs.errors import CodecError
from qwen3tts_codecs.pcm import Pcm
from qwen3tts_codecs.resample import Resampler

OPUS_HZ: Final = 24000
"""The engines' own rate: what Opus calls super-wideband, up to 12 kHz."""
OPUS_CLOCK_HZ: Final = 48000
"""RFC 7587 section 4.1: the RTP clock, whatever the rate of the samples."""
OPUS_PTIMES_MS: Final = (10, 20, 40, 60)
"""Frames of a call that are one frame of Opus (RFC 6716 section 2.1.4)."""

OPUS_SILENCE: Final = {
    10: bytes.fromhex("d0fffe"),
    20: bytes.fromhex("d8fffe"),
    40: bytes.fromhex("d9fffefffe"),
    60: bytes.fromhex("db03fffefffefffe"),
}
"""Silence by its duration, in the mode for music. A decoder that comes from the mode for speech
goes on with that for 5 ms and fades it out (RFC 6716 section 4.5), so speech that is cut off makes
no click; after silence in the mode for speech the step is up to 3.7 times as large as its own."""


@dataclass(frozen=True, slots=True)
class OpusSettings:
    """How speech is encoded."""

    bitrate: int = 32_000
    """Bits a second; from about 28,000 speech in full band is without audible loss (RFC 6716)."""
    lowdelay: bool = False
    """Without the mode for speech: 2.5 ms of look-ahead and not 6.5, a third of the work; but no
    FEC, and PESQ-WB 3.48 where the mode for speech gives 4.05."""
    fec: bool = True
    """A lost frame's outline travels in the next one (RFC 6716 section 2.1.7)."""
    expected_loss_pct: int = 5
    """What the encoder is prepared for; more makes frames depend less upon each other."""
    complexity: int = 6
    """0 to 10. Of 6 s of speech in 20 ms frames, PESQ-WB and microseconds a frame: 3 3.64 and 209;
    5 3.82, 252; 6 4.05, 249; 8 4.12, 338."""

    def __post_init__(self) -> None:
        if not 6000 <= self.bitrate <= 128_000:
            raise CodecError(f"bitrate={self.bitrate} is not between 6000 and 128000")
        if not 0 <= self.expected_loss_pct <= 100:
            raise CodecError(f"expected_loss_pct={self.expected_loss_pct} is not 0 to 100")
        if not 0 <= self.complexity <= 10:
            raise CodecError(f"complexity={self.complexity} is not 0 to 10")


def opus_encoder(frame_samples: int, settings: OpusSettings) -> AvEncoder:
    """Return an encoder of frames of so many samples at 24 kHz."""
    options = {
        "application": "lowdelay" if settings.lowdelay else "voip",
        "frame_duration": f"{frame_samples * 1000 // OPUS_HZ}",
        "packet_loss": str(settings.expected_loss_pct),
        "fec": "1" if settings.fec else "0",
        "compression_level": str(settings.complexity),
        "vbr": "on",
    }
    context = open_codec("libopus", "w", OPUS_HZ, options, bit_rate=settings.bitrate)
    # The header's pre-skip, at 48 kHz (RFC 7845 section 5.1), is the encoder's look-ahead.
    ahead = int.from_bytes(context.extradata[10:12], "little") * OPUS_HZ // OPUS_CLOCK_HZ
    return AvEncoder(context, OPUS_HZ, frame_samples, ahead)


class OpusDecoder:
    """Packets to samples at 24 kHz."""

    def __init__(self) -> None:
        self._decoder = AvDecoder("libopus", OPUS_CLOCK_HZ)
        self._resampler = Resampler(OPUS_CLOCK_HZ, OPUS_HZ)  # the library hands out 48 kHz

    def decode(self, data: bytes) -> Pcm:
        """Return the samples of one payload, shape [n]. Raises BadPayload."""
        return self._resampler.push(self._decoder.decode(data))
