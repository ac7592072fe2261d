"""Engine PCM as the client's format."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from qwen3tts_codecs.g711 import encode_alaw, encode_ulaw
from qwen3tts_codecs.pcm import Pcm, from_bytes, to_bytes
from qwen3tts_codecs.resample import Resampler
from qwen3tts_wire.errors import EngineUnavailable
from qwen3tts_wire.formats import AudioFormat
from qwen3tts_wire.heard import Word

MOST_PHASES = 160
"""Filter phases (44.1 kHz of 24 kHz: 147); more take megabytes and time."""


class Resampling(Protocol):
    """Resampling stream: output k lies at k / to_hz of the input."""

    def push(self, pcm: Pcm) -> Pcm: ...

    def flush(self) -> Pcm: ...


def resampling(from_hz: int, to_hz: int) -> Resampling:
    if to_hz // math.gcd(from_hz, to_hz) <= MOST_PHASES:
        return Resampler(from_hz, to_hz, aligned=True)
    return _FFmpeg(from_hz, to_hz)


class _FFmpeg:
    def __init__(self, from_hz: int, to_hz: int) -> None:
        try:
            import av
        except ImportError as error:
            raise EngineUnavailable(
                f"This server cannot make sound of {to_hz} Hz: PyAV is missing.",
                remedy="Ask for 8000, 16000, 24000 or 48000 Hz, or install it on the server: "
                "pip install 'mr_qwen3tts[server]'.",
            ) from error
        self._av: Any = av
        self._from_hz, self._to_hz = from_hz, to_hz
        self._begin()

    def _begin(self) -> None:
        self._inner = self._av.AudioResampler(format="s16", layout="mono", rate=self._to_hz)
        self._in = self._out = 0

    def push(self, pcm: Pcm) -> Pcm:
        if not len(pcm):
            return pcm[:0]
        frame = self._av.AudioFrame.from_ndarray(pcm[None, :], format="s16", layout="mono")
        frame.sample_rate = self._from_hz
        frame.pts = None
        self._in += len(pcm)
        return self._taken(self._inner.resample(frame))

    def flush(self) -> Pcm:
        rest = self._taken(self._inner.resample(None)) if self._in else np.zeros(0, np.int16)
        missing = round(self._in * self._to_hz / self._from_hz) - self._out
        self._begin()
        return np.concatenate([rest, np.zeros(max(0, missing), np.int16)])

    def _taken(self, frames: list[Any]) -> Pcm:
        parts = [each.to_ndarray().reshape(-1) for each in frames]
        samples: Pcm = np.concatenate([np.zeros(0, np.int16), *parts])
        # The filter's tail goes on behind the last sample that went in.
        room = round(self._in * self._to_hz / self._from_hz) - self._out
        samples = samples[: max(0, room)]
        self._out += len(samples)
        return samples


class Transcoder:
    """Converter of a context's samples.

    Engine sample n is context sample n * rate / engine rate; the group delay (3 ms) is held
    until ``flush``.
    """

    def __init__(self, engine_hz: int, form: AudioFormat) -> None:
        self._engine_hz = engine_hz
        self._form = form
        same = engine_hz == form.sample_rate
        self._resampler = None if same else resampling(engine_hz, form.sample_rate)
        self._in = 0
        """Engine samples since the flush."""
        self._out = 0
        """Context samples up to the flush."""
        self.samples = 0

    def push(self, pcm: bytes) -> bytes:
        self._in += len(pcm) // 2
        if self._resampler is not None:
            return self._encode(self._resampler.push(from_bytes(pcm)))
        if self._form.encoding == "pcm_s16le":
            self.samples += len(pcm) // 2
            return pcm
        return self._encode(from_bytes(pcm))

    def flush(self) -> bytes:
        """Return held samples; a new stream follows."""
        data = b"" if self._resampler is None else self._encode(self._resampler.flush())
        self._in = 0
        self._out = self.samples
        return data

    @property
    def engine_position(self) -> int:
        return self._in

    def word(self, word: Word, origin: int) -> Word:
        """Return a request's word at ``origin`` in context samples."""
        return word.moved(origin).at_rate(self._engine_hz, self._form.sample_rate).moved(self._out)

    def _encode(self, pcm: Pcm) -> bytes:
        self.samples += len(pcm)
        return _ENCODE[self._form.encoding](pcm)


_ENCODE: dict[str, Callable[[Pcm], bytes]] = {
    "pcm_s16le": to_bytes,
    "mulaw": encode_ulaw,
    "alaw": encode_alaw,
}
