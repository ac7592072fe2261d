"""Frame coders over PyAV (lazily imported), for G.722 and Opus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from qwen3tts_codecs.errors import BadPayload, CodecMissing
from qwen3tts_codecs.payload import check_frame
from qwen3tts_codecs.pcm import Pcm

if TYPE_CHECKING:
    from types import ModuleType

MAX_PAYLOAD_BYTES = 8192
"""Longer than any UDP datagram that is not fragmented."""


def library() -> ModuleType:
    """Return PyAV. Raises CodecMissing."""
    try:
        import av
    except ImportError as error:
        raise CodecMissing(
            "G.722 and Opus need PyAV, which is not installed: pip install 'mr_qwen3tts[phone]'"
        ) from error
    module: ModuleType = av
    return module


def open_codec(
    name: str, mode: str, rate_hz: int, options: Mapping[str, str], **fields: Any
) -> Any:
    """Return an open mono codec context; ``mode``: ``r`` or ``w``. Raises CodecMissing."""
    av = library()
    try:
        context = av.CodecContext.create(name, mode)
    except (ValueError, av.FFmpegError) as error:
        raise CodecMissing(
            f"This PyAV has no codec {name!r}; the wheels of the package index have it: "
            "pip install --force-reinstall av"
        ) from error
    context.sample_rate = rate_hz
    context.layout = "mono"
    if mode == "w":
        context.format = "s16"
    for field, value in fields.items():
        setattr(context, field, value)
    context.options = dict(options)
    context.open()
    return context


class AvEncoder:
    """`Encoder` over a PyAV codec, one packet a frame."""

    def __init__(self, context: Any, rate_hz: int, frame_samples: int, delay_samples: int) -> None:
        self.frame_samples = frame_samples
        self.delay_samples = delay_samples
        self._context = context
        self._rate_hz = rate_hz
        self._make = library().AudioFrame.from_ndarray

    def encode(self, pcm: Pcm) -> bytes:
        check_frame(pcm, self.frame_samples, self._context.name)
        frame = self._make(np.ascontiguousarray(pcm).reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate = self._rate_hz
        return b"".join(bytes(packet) for packet in self._context.encode(frame))


class AvDecoder:
    """`Decoder` over a PyAV codec, at the codec's own rate."""

    def __init__(self, name: str, rate_hz: int) -> None:
        self._name = name
        self._rate_hz = rate_hz
        self._open()

    def _open(self) -> None:
        self._context = open_codec(self._name, "r", self._rate_hz, {})
        self._packet = library().Packet
        self._error = library().FFmpegError

    def decode(self, data: bytes) -> Pcm:
        # An empty packet would end the stream.
        if not 0 < len(data) <= MAX_PAYLOAD_BYTES:
            raise BadPayload(f"{self._name}: {len(data)} bytes are no payload")
        try:
            frames = self._context.decode(self._packet(data))
        except self._error as error:
            self._open()
            raise BadPayload(f"{self._name}: {len(data)} bytes are no payload of it") from error
        parts = [mono(frame.to_ndarray(), frame.layout.nb_channels) for frame in frames]
        return np.concatenate(parts) if parts else np.zeros(0, np.int16)


def mono(samples: np.ndarray[Any, Any], channels: int) -> Pcm:
    """Return PyAV samples' first channel (any layout, int16 or float), shape [n]."""
    if samples.dtype != np.int16:
        samples = np.clip(np.rint(samples * 32768.0), -32768, 32767).astype(np.int16)
    flat = samples.reshape(-1) if channels == 1 else samples.reshape(-1, channels)[:, 0]
    pcm: Pcm = np.ascontiguousarray(flat)
    return pcm
