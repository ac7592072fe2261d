"""G.722 at 64 kbit/s: 16 samples and 8 bytes a millisecond, RTP clock 8000."""

from __future__ import annotations

from typing import Final

from qwen3tts_codecs.av_coder import AvDecoder, AvEncoder, open_codec
from qwen3tts_codecs.payload import CodecRating, CodecSpec, Payload

G722_HZ: Final = 16000
G722_DELAY: Final = 22
"""Samples: both quadrature mirror filters have 24 taps (table 11)."""

G722_SILENCE: Final = b"\xff"
"""Byte of silence: the smallest step in both bands. After 5 ms any decoder gives a level of 26 at 0
and 8 kHz, inaudible; encoded zeros hiss at that level and take 40 ms to fall to it."""


def g722_encoder(frame_samples: int) -> AvEncoder:
    options = {"frame_size": str(frame_samples)}
    context = open_codec("g722", "w", G722_HZ, options)
    return AvEncoder(context, G722_HZ, frame_samples, G722_DELAY)


def g722_decoder() -> AvDecoder:
    return AvDecoder("g722", G722_HZ)


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
# Not rated on the narrow-band scale: 64 kbit/s is not heard to be worse than G.711 there; its
# robustness is G.711's, for want of another figure.
SPECS: Final = (CodecSpec(G722, rating=CodecRating(0.0, 25.1, 1.5), aliases=("g722",)),)
