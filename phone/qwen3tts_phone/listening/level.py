"""Loudness above the line's own noise: needs nothing but numpy, and takes any sound for speech."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

WINDOW: Final = 80
FLOOR_S: Final = 1.5
"""The quietest tenth of a second of so long is the line's noise: no one speaks longer without a
pause in it."""
BLOCK: Final = 10
"""Windows of a tenth of a second."""
ABOVE_DB: Final = 9.0
"""So much above the noise it is half probable that somebody speaks."""
LEAST_DBFS: Final = -50.0
"""What is below this is silence on any line."""


class LevelDetector:
    """One stream's (`activity.VoiceDetector`)."""

    window = WINDOW

    def __init__(self) -> None:
        self._held: NDArray[np.int16] = np.zeros(0, np.int16)
        self._blocks: list[float] = []
        self._sum = 0.0
        self._count = 0

    def push(self, samples: NDArray[np.int16]) -> list[float]:
        """Probabilities of each 10 ms that is complete by now."""
        held = np.concatenate((self._held, samples)) if len(self._held) else samples
        count = len(held) // WINDOW
        self._held = held[count * WINDOW :].copy()
        if not count:
            return []
        frames = held[: count * WINDOW].reshape(count, WINDOW).astype(np.float32)
        powers = np.einsum("ij,ij->i", frames, frames) / (WINDOW * 32768.0**2)
        return [self._window(float(power)) for power in powers]

    def reset(self) -> None:
        """Forget the line."""
        self._held = np.zeros(0, np.int16)
        self._blocks.clear()
        self._sum, self._count = 0.0, 0

    def _window(self, power: float) -> float:
        self._sum += power
        self._count += 1
        if self._count == BLOCK:
            self._blocks.append(self._sum / BLOCK)
            self._sum, self._count = 0.0, 0
            if len(self._blocks) > FLOOR_S * 10:
                del self._blocks[0]
        dbfs = 10 * math.log10(power + 1e-12)
        floor = 10 * math.log10(min(self._blocks) + 1e-12) if self._blocks else LEAST_DBFS
        above = dbfs - max(floor + ABOVE_DB, LEAST_DBFS)
        return 1 / (1 + math.exp(-max(-20.0, min(20.0, above / 2))))
