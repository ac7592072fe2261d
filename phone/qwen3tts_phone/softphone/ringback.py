"""The tone that a caller hears while it rings at the other end, where nobody else makes it."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

HZ: Final = 425.0
ON_S: Final = 1.0
PERIOD_S: Final = 5.0
"""ITU-T E.180 section 3.4: 400 to 450 Hz, 0.67 to 1.5 s of tone and 3 to 5 s of silence."""
PEAK: Final = 2000.0
"""About -27 dBm0: heard, and not loud in a headset."""
RAMP_S: Final = 0.01
"""It begins and ends without a click."""


class Ringback:
    """Samples as they are asked for, from the beginning of a ring (pure)."""

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._given = 0

    def next(self, count: int) -> NDArray[np.int16]:
        """The next samples, shape [count]."""
        at = (np.arange(count) + self._given) / self._rate_hz
        self._given += count
        in_ring = at % PERIOD_S
        level = np.clip(np.minimum(in_ring, ON_S - in_ring) / RAMP_S, 0.0, 1.0)
        return np.rint(PEAK * level * np.sin(2 * np.pi * HZ * in_ring)).astype(np.int16)
