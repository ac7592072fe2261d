"""A recording from one sample rate to another, offline and between any two rates.

A linear-phase windowed sinc, one set of taps for each position of an output between two inputs.
The codecs' Resampler serves 16-bit streams between rates with a short common period; this serves
float recordings of any rate, at the quality of studio converters, and has time to do it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_HALF_WIDTH = 96
"""Half the filter's length, in samples of the lower rate."""
_BETA = 12.0
"""Kaiser: -118 dB in the stop band, which begins at half the lower rate."""
_TRANSITION = 0.04
"""Between pass and stop band, in units of the lower rate: what the window's width and beta give."""
_POSITIONS = 1024
"""Where the rates' common period has more, taps between two of these are interpolated linearly,
which is as quiet as the stop band."""
_CHUNK = 8192
"""Outputs computed together; bounds the memory."""


def convert(samples: NDArray[np.float32], from_hz: int, to_hz: int) -> NDArray[np.float32]:
    """Samples at ``from_hz``, shape [n], to ``to_hz``: output k lies where input time k / to_hz is.

    Shape [ceil(n * to_hz / from_hz)]. Equal rates give the very same array. Before and after the
    recording is silence.
    """
    if from_hz == to_hz:
        return samples
    common = math.gcd(from_hz, to_hz)
    up, down = to_hz // common, from_hz // common
    lower = min(from_hz, to_hz)
    half = _HALF_WIDTH * from_hz / lower
    reach = math.ceil(half)
    cut = lower / from_hz * (1 - _TRANSITION)
    steps = min(up, _POSITIONS)
    table = _taps(np.arange(steps + 1) / steps, reach, half, cut)
    padded = np.pad(samples.astype(np.float64), (reach, reach + 1))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach)
    count = -(-len(samples) * up // down)
    result = np.empty(count, np.float32)
    for start in range(0, count, _CHUNK):
        newest, phase = np.divmod(np.arange(start, min(start + _CHUNK, count)) * down, up)
        row, rest = np.divmod(phase * steps, up)
        taps = table[row]
        if steps < up:
            taps += (rest / up)[:, None] * (table[row + 1] - taps)
        # Window i begins ``reach`` inputs before input i; the taps begin one later.
        result[start : start + len(row)] = np.einsum("kt,kt->k", windows[newest + 1], taps)
    return result


def _taps(
    fraction: NDArray[np.float64], reach: int, half: float, cut: float
) -> NDArray[np.float64]:
    """Taps of outputs that lie ``fraction`` of a sample behind an input, shape [f, 2 * reach].

    Tap t belongs to the input t - reach + 1 after that one. Each row sums to 1.
    """
    distance = np.arange(1 - reach, reach + 1) - fraction[:, None]
    inside = np.sqrt(np.maximum(0, 1 - (distance / half) ** 2))
    window = np.where(np.abs(distance) <= half, np.i0(_BETA * inside), 0)
    taps = np.sinc(cut * distance) * window
    normal: NDArray[np.float64] = taps / taps.sum(axis=1, keepdims=True)
    return normal
