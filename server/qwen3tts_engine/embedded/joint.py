"""Going on with the same words said again, where the first saying broke off: without a click.

The library's noise is unseeded and its pitch cycle runs on from text to text, so the second saying
is not the first bit for bit: its words lie within some 30 samples of the first's. What was given
out cannot be changed, so the second saying is entered where it looks most like the end of the
first, and the step that is left is faded.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

TAIL_S = 0.015
"""How much of what was given out is compared: more than a period of the lowest voice."""
REACH_S = 0.012
"""How far from the same place the best likeness is looked for."""
FADE_S = 0.005
"""How long the rest of the step takes to vanish."""


def entry(tail: NDArray[np.int16], again: NDArray[np.int16], near: int, reach: int) -> int:
    """Where to enter ``again`` so that it goes on from ``tail``.

    ``tail``, shape [t], is the end of what was given out, ``again``, shape [n], the same said anew
    from its start, ``near`` how much was given out. The answer is within ``reach`` of ``near``.
    """
    tail = tail[-near:] if near else tail[:0]
    size = len(tail)
    first = max(size, near - reach)
    last = min(len(again), near + reach)
    if size == 0 or last <= first:
        return min(near, len(again))
    windows = np.lib.stride_tricks.sliding_window_view(
        again[first - size : last].astype(np.float64), size
    )
    likeness = windows @ tail.astype(np.float64)  # over the energies: -1 to 1
    energy = np.sqrt(np.einsum("ij,ij->i", windows, windows)) * np.linalg.norm(tail) + 1.0
    # Among equals (silence) the nearest place.
    distance = np.abs(np.arange(first, first + len(windows)) - near)
    best = np.lexsort((distance, -np.round(likeness / energy, 3)))[0]
    return int(first + best)


def faded_step(sound: NDArray[np.int16], step: int, fade: int) -> NDArray[np.int16]:
    """``sound`` with ``step`` added to its first sample and vanishing over ``fade`` samples."""
    count = min(fade, len(sound))
    if count == 0 or step == 0:
        return sound
    joined = sound.astype(np.int32)
    joined[:count] += np.round(step * (1.0 - np.arange(count) / fade)).astype(np.int32)
    return np.clip(joined, -32768, 32767).astype(np.int16)
