"""What turns frames into packets and back: one object for each direction of one stream.

G.711 and linear samples need no memory, and their coders have none. G.722 and Opus describe each
frame by what went before it, so an `Encoder` belongs to one stream, and so does a `Decoder`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from qwen3tts_codecs.errors import BadSamples
from qwen3tts_codecs.pcm import Pcm, check_samples


class Encoder(Protocol):
    """Frames of one length in, payloads out."""

    @property
    def frame_samples(self) -> int:
        """Samples of a frame, at the format's ``sample_hz``."""

    @property
    def delay_samples(self) -> int:
        """How far the decoded sound lies behind the encoded one, at the format's ``sample_hz``."""

    def encode(self, pcm: Pcm) -> bytes:
        """Return the payload of one frame, shape [frame_samples]. Raises BadSamples."""


class Decoder(Protocol):
    """Payloads in, samples out."""

    def decode(self, data: bytes) -> Pcm:
        """Return the samples of one payload, shape [n], at the format's ``sample_hz``.

        Raises BadPayload for bytes that are none; the next payload can be decoded all the same.
        """


class PlainEncoder:
    """The `Encoder` of a format without memory."""

    delay_samples = 0

    def __init__(self, frame_samples: int, encode: Callable[[Pcm], bytes]) -> None:
        self.frame_samples = frame_samples
        self._encode = encode

    def encode(self, pcm: Pcm) -> bytes:
        """Return the payload of one frame."""
        check_frame(pcm, self.frame_samples, "PlainEncoder")
        return self._encode(pcm)


class PlainDecoder:
    """The `Decoder` of a format without memory."""

    def __init__(self, decode: Callable[[bytes], Pcm]) -> None:
        self._decode = decode

    def decode(self, data: bytes) -> Pcm:
        """Return the samples of one payload."""
        return self._decode(data)


def check_frame(pcm: Pcm, frame_samples: int, where: str) -> None:
    """Raise BadSamples, naming ``where``, unless ``pcm`` is one frame."""
    check_samples(pcm, where)
    if len(pcm) != frame_samples:
        raise BadSamples(f"{where}: a frame has {frame_samples} samples, not {len(pcm)}")
