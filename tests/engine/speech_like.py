"""Sound with the rhythm of speech: as many syllables as a text has, at the usual rate."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from qwen3tts_text.word_units import SpokenWords, usual_unit_s

Kind = Literal["syllables", "tone", "noise"]
Sound = NDArray[np.float32]
"""24 kHz, within -1 to 1."""


def silence(seconds: float) -> Sound:
    return np.zeros(round(seconds * 24_000), np.float32)


def voice(text: str, *, rate: float = 1.0, language: str = "en", kind: Kind = "syllables") -> Sound:
    """The text's length at the usual rate or a factor of it, without pauses: a buzz with a rise and
    a fall for each syllable, or sound without syllables."""
    units = sum(word.units for word in SpokenWords(text, ended=True, language=language).words)
    syllable_s = usual_unit_s(language) / rate
    t = np.arange(round(units * syllable_s * 24_000)) / 24_000
    buzz = np.sin(2 * np.pi * 150 * t)
    if kind == "tone":
        return np.asarray(0.2 * buzz, np.float32)
    if kind == "noise":
        return np.asarray(np.random.default_rng(1).normal(0, 0.1, len(t)), np.float32)
    level = 0.02 + 0.28 * np.abs(np.sin(np.pi * t / syllable_s))
    return np.asarray(level * buzz, np.float32)
