"""Steady sound is no speech, however long it lasts: hum, a fan, a tone that nobody ends."""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

STEADY_S: Final = 2.0
"""Speech does not keep its level for so long."""
CHANGE_DB: Final = 4.0
"""Between the quietest and the loudest tenth of it."""
ABOVE_DB: Final = 1.5
"""What is so much louder is something new."""
LOOK_S: Final = 0.25
"""How often it is looked at."""


class Steadiness:
    """Levels of successive pieces in; whether each belongs to a steady sound out (pure)."""

    def __init__(self, piece_s: float) -> None:
        self._top: float | None = None
        """The level of the steady sound that there is."""
        count = max(8, round(STEADY_S / piece_s))
        self._levels: deque[float] = deque(maxlen=count)
        self._every = max(1, round(LOOK_S / piece_s))
        self._left = self._every

    def push(self, dbfs: float) -> bool:
        """Take the level of one piece; whether it goes on with two seconds of the same."""
        self._levels.append(dbfs)
        self._left -= 1
        if self._left <= 0:
            self._left = self._every
            levels = self._levels
            if len(levels) == levels.maxlen:
                low, high = np.percentile(np.fromiter(levels, float, len(levels)), (10, 90))
                self._top = float(high) if high - low < CHANGE_DB else None
        return self._top is not None and dbfs < self._top + ABOVE_DB
