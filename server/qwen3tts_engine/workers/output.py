"""Audio of one request at the engines' rate, and its words. Pure."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.resample import Resampler
from qwen3tts_engine.base import SAMPLE_RATE, PcmChunk, SynthesisRequest
from qwen3tts_wire.heard import Word

Pcm = NDArray[np.int16]


class ResampledOutput:
    """Resamples one request's samples; returns chunks with the words that are complete."""

    def __init__(self, request: SynthesisRequest, rate: int) -> None:
        self._request = request
        self._rate = rate
        self._resampler = Resampler(rate, SAMPLE_RATE, aligned=True)
        self.taken = 0
        """Samples at the voice's rate that were taken."""
        self._given = 0
        """Samples given out."""
        self._words: deque[Word] = deque()
        """Complete, but their sound is not all given out."""

    def take(self, samples: Pcm) -> PcmChunk | None:
        """Take samples at the voice's rate; None: no chunk yet."""
        self.taken += len(samples)
        return self._chunk(self._resampler.push(samples))

    def words(self) -> PcmChunk | None:
        return self._chunk(np.zeros(0, np.int16))

    def finish(self) -> PcmChunk | None:
        return self._chunk(self._resampler.flush())

    def add(self, chars: tuple[int, int], samples: tuple[int, int], precision: str) -> None:
        char_start, char_end = self._request.original(*chars)
        text = self._request.text[chars[0] : chars[1]]
        self._words.append(Word(text, *samples, char_start, char_end, precision))

    def scaled(self, sample: int) -> int:
        return (2 * sample * SAMPLE_RATE + self._rate) // (2 * self._rate)

    def _chunk(self, pcm: Pcm) -> PcmChunk | None:
        self._given += len(pcm)
        due = []
        while self._words and self._words[0].end <= self._given:
            due.append(self._words.popleft())
        return PcmChunk(pcm.astype("<i2").tobytes(), tuple(due)) if len(pcm) or due else None
