"""How loud an echo can be: bounds of the power that comes back, and of what a filter leaves of it.

A caller only adds to what is heard. So the least ratio of what was heard to what was sent bounds
the gain of an echo of each delay, also while he speaks; and what a filter usually leaves in each
band bounds what it leaves of the next sound.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Array = NDArray[np.float64]

PIECE: Final = 160
"""Samples at 8 kHz whose powers are looked at, 20 ms, or less."""
RATE_HZ: Final = 8000

MEMORY_S: Final = 0.2
"""Of the powers whose ratio is taken: single sounds pass an echo path very differently."""
RELEASE_DB_S: Final = 3.0
"""So fast a bound is forgotten while we speak: paths change."""
ENOUGH: Final = 10 ** (-50 / 10)
"""Mean power of what was sent, in the memory, from which the ratio says something."""
LOUDEST: Final = 1.0
"""No echo has more power than what was sent."""

EDGES: Final = np.array([0, 20, 32, 48, 68, 92, 124])
"""First bins of 25 Hz of the bands in which the rest is judged, the last one up to 4 kHz. A path is
learnt where it was excited: a vowel says nothing about the next sound's hiss."""
SMEARED: Final = 0.55 ** np.arange(8, -1, -1)
"""Shares of what was sent in the last 180 ms, in the power of an echo."""
TAIL: Final = 0.75
"""What a filter leaves dies away no faster in 20 ms: a room goes on after the filter's last tap."""
LEAK_MEMORY_S: Final = 0.3
LAG: Final = 800
"""The newest samples are not yet part of what is usual: the caller may be in them."""
GROWS: Final = 10 ** (4 / 10)
"""What is left counts up to this multiple of what is usual."""
PRIOR: Final = 10 ** (-55 / 10)
"""Mean power of sound of which all came back: what stands for a band that has not sounded yet."""
_WINDOW: Final = np.hanning(PIECE + 2)[1:-1].astype(np.float32)


class GainBound:
    """Upper bounds of the power gains of ``count`` echo paths (pure)."""

    def __init__(self, count: int) -> None:
        self.gains: Array = np.full(count, LOUDEST)
        """Shape [count]."""
        self._heard = 0.0
        self._sent = np.zeros(count)

    def reset(self) -> None:
        """Nothing is known any more."""
        self.gains[:] = LOUDEST
        self._sent[:] = 0.0

    def push(self, heard: float, sent: Array, count: int) -> None:
        """Mean powers of ``count`` samples: what was heard, and what each path would return of what
        was sent at a gain of 1, shape [count of paths]."""
        kept = math.exp(-count / RATE_HZ / MEMORY_S)
        self._heard = kept * self._heard + (1 - kept) * heard
        self._sent *= kept
        self._sent += (1 - kept) * sent
        known = self._sent > ENOUGH
        release = 10 ** (RELEASE_DB_S * count / RATE_HZ / 10)
        ratios = self._heard / self._sent[known]
        self.gains[known] = np.minimum(self.gains[known] * release, ratios)
        np.minimum(self.gains, LOUDEST, out=self.gains)

    def most(self, sent: Array) -> float:
        """The most power that comes back of these by any path."""
        return float((self.gains * sent).max())


class Leak:
    """What a filter leaves of an echo, as a share of what was sent, in bands (pure).

    ``sent`` below is what excites the path: the last `EXCITED` samples, up to those that come back
    first at the end of the piece.
    """

    EXCITED: Final = PIECE * len(SMEARED)

    def __init__(self) -> None:
        self._left: Array = np.zeros(len(EDGES))
        self._sent: Array = np.zeros(len(EDGES))
        self._bound: Array = np.zeros(len(EDGES))
        self._held: deque[tuple[Array, Array, int]] = deque()
        self._lag = 0

    def push(self, rest: Floats, sent: Floats, callers: bool) -> tuple[float, float]:
        """Take what is left of a piece, shape [1 to PIECE].

        ``callers``: the caller speaks in it. Returns its power, and what an echo usually leaves.
        """
        left, excited = bands(rest), self._excited(sent)
        usual = (self._left + PRIOR) / (self._sent + PRIOR) * excited
        self._bound = np.maximum(usual, TAIL ** (len(rest) / PIECE) * self._bound)
        power, bound = float(left.sum()), float(self._bound.sum())
        if callers:
            self._held.clear()
            self._lag = 0
        if power > GROWS * bound:
            left = np.minimum(left, GROWS * self._bound)
        self._held.append((left, excited, len(rest)))
        self._lag += len(rest)
        while self._lag > LAG:
            oldest = self._held.popleft()
            self._lag -= oldest[2]
            self._take(*oldest)
        return power, bound

    def begin(self, heard: Floats, sent: Floats) -> None:
        """Take what was heard of a piece before the path was known: nothing was taken from it."""
        self._take(bands(heard), self._excited(sent), len(heard))

    def scale(self, share: float) -> None:
        """The filter is better: it leaves this share of what it has left."""
        self._left *= share
        for left, _, _ in self._held:
            left *= share

    def _excited(self, sent: Floats) -> Array:
        powers: Array = SMEARED @ bands(sent.reshape(-1, PIECE))
        return powers

    def _take(self, left: Array, sent: Array, count: int) -> None:
        kept = math.exp(-count / RATE_HZ / LEAK_MEMORY_S)
        self._left = kept * self._left + (1 - kept) * left
        self._sent = kept * self._sent + (1 - kept) * sent


def bands(sound: Floats) -> Array:
    """Powers in bands of pieces of up to 20 ms, shape [..., n] to [..., bands]."""
    count = sound.shape[-1]
    window = _WINDOW if count == PIECE else np.hanning(count + 2)[1:-1].astype(np.float32)
    spectrum = np.fft.rfft(sound * window, 2 * PIECE)
    powers = np.square(spectrum.real) + np.square(spectrum.imag)
    summed: Array = np.add.reduceat(powers, EDGES, axis=-1, dtype=np.float64)
    return summed / (PIECE * float(window @ window))
