"""Pitch period search, and time stretching by one period (WSOLA)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SHORTEST_MS = 2.5
"""400 Hz; shorter periods are found as their double or triple."""
LONGEST_MS = 15.0
"""66 Hz."""


WINDOW_MS = 10.0
"""Correlation window."""
MIN_LIKENESS = 0.85
"""Pieces that are at least so alike may be faded into each other (a normalised correlation)."""


def bounds(rate_hz: int) -> tuple[int, int]:
    return round(SHORTEST_MS * rate_hz / 1000), round(LONGEST_MS * rate_hz / 1000)


def best_lag(signal: Floats, window: int, low: int, high: int) -> tuple[int, float]:
    """Return the lag with the highest normalised correlation, and that.

    Compares the first ``window`` samples; needs ``high + window`` samples.
    """
    first = signal[:window]
    windows = np.lib.stride_tricks.sliding_window_view(signal[low : high + window], window)
    products = windows @ first
    energies = np.einsum("ij,ij->i", windows, windows)
    likeness = products / np.sqrt(np.maximum(energies * float(first @ first), 1e-9))
    best = int(np.argmax(likeness))
    return low + best, float(likeness[best])


def period_of_end(history: Floats, rate_hz: int, window: int) -> tuple[int, float]:
    """Return the pitch period at the end of ``history``, and its correlation.

    Needs the longest period and two windows. A coarse search at about 4 kHz comes first.
    """
    low, high = bounds(rate_hz)
    backwards = np.ascontiguousarray(history[: -2 * high - window - 1 : -1])
    step = max(1, rate_hz // 4000)
    whole = len(backwards) // step * step
    coarse = backwards[:whole].reshape(-1, step).mean(axis=1)
    lag, _ = best_lag(coarse, window // step, low // step, high // step)
    return best_lag(backwards, window, max(low, (lag - 1) * step), min(high, (lag + 1) * step))


Samples = NDArray[np.int16]


def shorten(
    ready: Samples, rate_hz: int, most: int, *, alike: float = MIN_LIKENESS, quiet: bool = False
) -> tuple[Samples, int]:
    """Remove one pitch period, at most ``most`` samples, from ``ready``, shape [n].

    Returns the rest and the number of samples removed; 0 = no good place. ``quiet``: remove as much
    as possible.
    """
    low, high = bounds(rate_hz)
    window = round(WINDOW_MS * rate_hz / 1000)
    high = min(high, most, len(ready) - window, len(ready) // 2)
    if high < low:
        return ready, 0
    signal = ready[: high + max(high, window)].astype(np.float64)
    period, likeness = (high, 1.0) if quiet else best_lag(signal, window, low, high)
    if likeness < alike:
        return ready, 0
    joint = _fade(signal[:period], signal[period : 2 * period])
    return np.concatenate((joint, ready[2 * period :])), period


def lengthen(
    heard: Samples,
    ready: Samples,
    rate_hz: int,
    *,
    alike: float = MIN_LIKENESS,
    quiet: bool = False,
) -> tuple[Samples, int]:
    """Repeat the last period of ``heard`` before ``ready``; shapes [m] and [n].

    Returns the samples to play and the number added; 0 = no good place.
    """
    low, high = bounds(rate_hz)
    window = round(WINDOW_MS * rate_hz / 1000)
    high = min(high, len(ready), len(heard) - window)
    if high < low:
        return ready, 0
    past = heard[-(high + window) :].astype(np.float64)
    # Backwards in time the end of what was heard is the beginning.
    period, likeness = best_lag(past[::-1], window, low, high)
    if likeness < alike and not quiet:
        return ready, 0
    joint = _fade(ready[:period].astype(np.float64), past[-period:])
    return np.concatenate((joint, ready)), period


def _fade(one: Floats, other: Floats) -> Samples:
    rise = (np.arange(len(one)) + 0.5) / len(one)
    faded: Samples = np.rint(one * (1 - rise) + other * rise).astype(np.int16)
    return faded
