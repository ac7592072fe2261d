"""Samples at their places on a time axis; where none were put there is silence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class SampleLine:
    """The newest ``kept`` samples of an axis that begins anywhere; full scale 1 (pure)."""

    def __init__(self, kept: int) -> None:
        self.end = 0
        """The index behind the last sample."""
        self.empty = True
        """Whether nothing was ever put there."""
        self._kept = kept
        self._buffer = np.zeros(2 * kept, np.float32)
        self._base = 0  # index of the buffer's first sample

    def put(self, samples: Floats, at: int) -> None:
        """Put samples, shape [n], at index ``at``; those before what is kept are lost."""
        if self.empty or at > self.end + self._kept or at < self.end - self._kept:
            self._buffer[:] = 0
            self._base = at - self._kept
            self.end = at
            self.empty = False
        while at + len(samples) > self._base + len(self._buffer):
            self._buffer[: self._kept] = self._buffer[self._kept :]
            self._buffer[self._kept :] = 0
            self._base += self._kept
        start = max(at, self._base)
        if at + len(samples) > start:
            self._buffer[start - self._base : at + len(samples) - self._base] = samples[
                start - at :
            ]
        self.end = max(self.end, at + len(samples))

    def get(self, start: int, stop: int) -> Floats:
        """Samples from index ``start`` to before ``stop``, shape [stop - start]."""
        first, last = start - self._base, stop - self._base
        if first >= 0 and last <= len(self._buffer):
            return self._buffer[first:last]
        found = np.zeros(stop - start, np.float32)
        low, high = max(first, 0), min(last, len(self._buffer))
        if high > low:
            found[low - first : high - first] = self._buffer[low:high]
        return found
