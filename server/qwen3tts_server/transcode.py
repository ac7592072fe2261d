"""The engine's samples in the form that a context asked for."""

from __future__ import annotations

from collections.abc import Callable

from qwen3tts_codecs.g711 import encode_alaw, encode_ulaw
from qwen3tts_codecs.pcm import Pcm, from_bytes, to_bytes
from qwen3tts_server.any_rate import resampling
from qwen3tts_wire.formats import AudioFormat
from qwen3tts_wire.heard import Word


class Transcoder:
    """Brings one context's samples from the engine's rate to its format.

    The samples keep their place: sample n of the engine is sample n * rate / engine rate of the
    context. The resampler holds back its group delay (3 ms); ``flush`` gives it out.
    """

    def __init__(self, engine_hz: int, form: AudioFormat) -> None:
        self._engine_hz = engine_hz
        self._form = form
        same = engine_hz == form.sample_rate
        self._resampler = None if same else resampling(engine_hz, form.sample_rate)
        self._in = 0
        """Engine samples since the last flush."""
        self._out = 0
        """Context samples up to the last flush."""
        self.samples = 0
        """Context samples given out."""

    def push(self, pcm: bytes) -> bytes:
        """Engine samples (s16le) in, context samples out."""
        self._in += len(pcm) // 2
        if self._resampler is not None:
            return self._encode(self._resampler.push(from_bytes(pcm)))
        if self._form.encoding == "pcm_s16le":
            self.samples += len(pcm) // 2
            return pcm
        return self._encode(from_bytes(pcm))

    def flush(self) -> bytes:
        """What is held back; the samples after it begin a new stretch."""
        data = b"" if self._resampler is None else self._encode(self._resampler.flush())
        self._in = 0
        self._out = self.samples
        return data

    @property
    def engine_position(self) -> int:
        """Engine samples since the last flush: where a request that begins now begins."""
        return self._in

    def word(self, word: Word, origin: int) -> Word:
        """A request's word in samples of the context; ``origin`` is the request's position."""
        return word.moved(origin).at_rate(self._engine_hz, self._form.sample_rate).moved(self._out)

    def _encode(self, pcm: Pcm) -> bytes:
        self.samples += len(pcm)
        return _ENCODE[self._form.encoding](pcm)


_ENCODE: dict[str, Callable[[Pcm], bytes]] = {
    "pcm_s16le": to_bytes,
    "mulaw": encode_ulaw,
    "alaw": encode_alaw,
}
