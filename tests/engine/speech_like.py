"""Sound with the rhythm of speech: as many syllables as a text has, at the usual rate."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from qwen3tts_engine.word_units import SpokenWords, usual_unit_s

Sound = NDArray[np.float32]
"""24 kHz, within -1 to 1."""


def silence(seconds: float) -> Sound:
    return np.zeros(round(seconds * 24_000), np.float32)


def voice(text: str, *, rate: float = 1.0) -> Sound:
    """A buzz with a rise and a fall for each syllable of the text, at the usual rate or a factor of
    it, without pauses."""
    seconds = [0.0]
    for word in SpokenWords(text, ended=True, language="en").words:
        seconds.append(seconds[-1] + word.units * usual_unit_s("en") / rate)
    t = np.arange(round(seconds[-1] * 24_000)) / 24_000
    syllable_s = usual_unit_s("en") / rate
    level = 0.02 + 0.28 * np.abs(np.sin(np.pi * t / syllable_s))
    return np.asarray(level * np.sin(2 * np.pi * 150 * t), np.float32)
