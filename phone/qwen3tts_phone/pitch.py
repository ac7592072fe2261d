"""The pitch period of a piece of speech: at which lag it looks most like itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SHORTEST_MS = 2.5
"""400 Hz; shorter periods are found as their double or triple."""
LONGEST_MS = 15.0
"""66 Hz."""


def bounds(rate_hz: int) -> tuple[int, int]:
    """The shortest and the longest period, in samples."""
    return round(SHORTEST_MS * rate_hz / 1000), round(LONGEST_MS * rate_hz / 1000)


def best_lag(signal: Floats, window: int, low: int, high: int) -> tuple[int, float]:
    """The lag of ``low`` to ``high`` at which the first ``window`` samples look like themselves.

    Needs ``high + window`` samples. The likeness is a normalised correlation, -1 to 1.
    """
    first = signal[:window]
    windows = np.lib.stride_tricks.sliding_window_view(signal[low : high + window], window)
    products = windows @ first
    energies = np.einsum("ij,ij->i", windows, windows)
    likeness = products / np.sqrt(np.maximum(energies * float(first @ first), 1e-9))
    best = int(np.argmax(likeness))
    return low + best, float(likeness[best])


def period_of_end(history: Floats, rate_hz: int, window: int) -> tuple[int, float]:
    """The period of the last samples of ``history``, and its likeness.

    Needs the longest period and two windows. Searched in steps of about 4 kHz first, then right to
    the sample.
    """
    low, high = bounds(rate_hz)
    backwards = np.ascontiguousarray(history[: -2 * high - window - 1 : -1])
    step = max(1, rate_hz // 4000)
    whole = len(backwards) // step * step
    coarse = backwards[:whole].reshape(-1, step).mean(axis=1)
    lag, _ = best_lag(coarse, window // step, low // step, high // step)
    return best_lag(backwards, window, max(low, (lag - 1) * step), min(high, (lag + 1) * step))
