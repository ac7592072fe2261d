"""Recordings as files of many kinds."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.g711 import encode_alaw, encode_ulaw

PCM, FLOAT, ALAW, ULAW, EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
GUID_REST = bytes.fromhex("000000001000800000aa00389b71")


def chunk(name: bytes, body: bytes) -> bytes:
    return name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)


def riff(*chunks: bytes) -> bytes:
    body = b"WAVE" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def layout(tag: int, channels: int, rate: int, bits: int, *, block: int | None = None) -> bytes:
    block = channels * bits // 8 if block is None else block
    return struct.pack("<HHIIHH", tag, channels, rate, rate * block % 2**32, block, bits)


def extensible(tag: int, channels: int, rate: int, bits: int, rest: bytes = GUID_REST) -> bytes:
    head = layout(EXTENSIBLE, channels, rate, bits)
    return head + struct.pack("<HHIH", 22, bits, 0, tag) + rest


def encoded(samples: NDArray[np.float32], tag: int, bits: int) -> bytes:
    """Samples of full scale ±1, any shape, as a WAV file's data."""
    if tag == FLOAT:
        return samples.astype(f"<f{bits // 8}").tobytes()
    if tag == ULAW:
        return encode_ulaw(np.rint(samples.reshape(-1) * 32767).astype(np.int16))
    if tag == ALAW:
        return encode_alaw(np.rint(samples.reshape(-1) * 32767).astype(np.int16))
    whole = np.rint(samples.astype(np.float64) * 2.0 ** (bits - 1)).astype(np.int64)
    whole = whole.clip(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if bits == 8:
        return (whole + 128).astype(np.uint8).tobytes()
    wide = whole.astype("<i8").reshape(-1, 1).view(np.uint8)
    return wide[:, : bits // 8].tobytes()


def wav(
    samples: NDArray[np.float32], rate: int = 24_000, *, tag: int = PCM, bits: int = 16
) -> bytes:
    """A WAV file of samples, shape [n] or [n, channels]."""
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    return riff(
        chunk(b"fmt ", layout(tag, channels, rate, bits)),
        chunk(b"data", encoded(samples, tag, bits)),
    )


def other_file(
    av: Any, samples: NDArray[np.float32], rate: int, container: str, codec: str, form: str
) -> bytes:
    """A file of another kind, made by PyAV; samples of shape [n] or [n, 2]."""
    planes = samples.reshape(len(samples), -1).T
    if form.startswith("s16"):
        planes = np.rint(planes * 32767).astype(np.int16)
    if not form.endswith("p"):
        planes = planes.T.reshape(1, -1)
    file = io.BytesIO()
    channels = "mono" if samples.ndim == 1 else "stereo"
    with av.open(file, "w", format=container) as output:
        stream = output.add_stream(codec, rate=rate, layout=channels)
        frame = av.AudioFrame.from_ndarray(
            np.ascontiguousarray(planes), format=form, layout=channels
        )
        frame.rate = rate
        frames = av.AudioFifo()
        frames.write(frame)
        size = stream.codec_context.frame_size or 4096
        while (part := frames.read(size, partial=True)) is not None:
            output.mux(stream.encode(part))
        output.mux(stream.encode(None))
    return file.getvalue()
