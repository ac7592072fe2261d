"""Speed of an engine that has one speed: time scaling of its sound, and of its words' times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.time_scale import TimeScale
from qwen3tts_wire.heard import Word

SAMPLE_RATE = 24_000
"""Hertz, as base.SAMPLE_RATE."""
Samples = NDArray[np.float32]
Words = tuple[Word, ...]


class SpeechScale:
    """Scales one generation's sound, float32 in ±1; a word follows the sound that it ends with.

    Args:
        speed: factor on the rate of speech; 1: sound and words pass unchanged.
    """

    def __init__(self, speed: float) -> None:
        self._scale = TimeScale(speed, SAMPLE_RATE)
        self._words: list[Word] = []

    @property
    def scales(self) -> bool:
        return self._scale.speed != 1.0

    def push(self, samples: Samples, words: Words) -> tuple[Samples, Words]:
        """Take samples [n], and words timed in all samples taken; return both as heard."""
        if not self.scales:
            return samples, words
        self._words += words
        made = self._scale.push(samples)
        ready = 0
        while ready < len(self._words) and self._heard(self._words[ready]):
            ready += 1
        return made, self._take(ready)

    def end(self, words: Words = ()) -> tuple[Samples, Words]:
        if not self.scales:
            return np.zeros(0, np.float32), words
        self._words += words
        made = self._scale.end()
        return made, self._take(len(self._words))

    def _heard(self, word: Word) -> bool:
        return round(word.end / self._scale.speed) <= self._scale.given

    def _take(self, count: int) -> Words:
        place = self._scale.place
        taken = tuple(
            replace(word, start=place(word.start), end=place(word.end))
            for word in self._words[:count]
        )
        del self._words[:count]
        return taken
