"""Making speech a little shorter or longer without changing its pitch (WSOLA, one period a time).

Two pieces that lie a pitch period apart look alike. Where they are cross-faded, a period can be
left out, or put in, and nothing else changes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from qwen3tts_phone.pitch import best_lag, bounds

Samples = NDArray[np.int16]
Floats = NDArray[np.float64]

WINDOW_MS = 10.0
"""What is compared."""
ALIKE = 0.85
"""Pieces that are at least so alike may be faded into each other (a normalised correlation)."""


def shorten(
    ready: Samples, rate_hz: int, most: int, *, alike: float = ALIKE, quiet: bool = False
) -> tuple[Samples, int]:
    """Leave out one period, at most ``most`` samples, at the beginning of ``ready``, shape [n].

    Return what is left, and how many samples shorter it is; 0 = there is no good place here. In a
    ``quiet`` place a joint is inaudible, and as much is left out as may be.
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
    heard: Samples, ready: Samples, rate_hz: int, *, alike: float = ALIKE, quiet: bool = False
) -> tuple[Samples, int]:
    """Say the last period of ``heard`` once more before ``ready`` goes on; shapes [m] and [n].

    Return what is to be played, and how many samples longer it is; 0 = this is no good place.
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
    """From one to the other over their whole length."""
    rise = (np.arange(len(one)) + 0.5) / len(one)
    faded: Samples = np.rint(one * (1 - rise) + other * rise).astype(np.int16)
    return faded
