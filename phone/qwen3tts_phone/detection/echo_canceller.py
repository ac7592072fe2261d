"""Adaptive filter of an echo path up to 150 ms long, and its signals.

The filter is the least-squares fit to the last 0.8 s, by conjugate gradients with fast convolution.
It takes 0.5 s to 12 dB in a room; frequency-domain filters (Enzner & Vary's Kalman filter, Speex's
MDF) take 2 s, because speech excites the taps very unequally.

- *Prior*: taps are small, smaller the later, or follow a short response once found.
- *Double talk*: each 20 ms counts by the inverse of its residual.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class SampleTimeline:
    """Newest ``kept`` samples on a time axis, with silence in gaps; full scale 1 (pure)."""

    def __init__(self, kept: int) -> None:
        self.end = 0
        """Index after the last sample."""
        self.empty = True
        self._kept = kept
        self._buffer = np.zeros(2 * kept, np.float32)
        self._base = 0  # index of the buffer's first sample

    def put(self, samples: Floats, at: int) -> None:
        """Put samples, shape [n], at index ``at``; too old ones are lost."""
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
        """Return the samples from ``start`` to before ``stop``, shape [stop - start]."""
        first, last = start - self._base, stop - self._base
        if first >= 0 and last <= len(self._buffer):
            return self._buffer[first:last]
        found = np.zeros(stop - start, np.float32)
        low, high = max(first, 0), min(last, len(self._buffer))
        if high > low:
            found[low - first : high - first] = self._buffer[low:high]
        return found


TAPS: Final = 1280
"""160 ms of filter..."""
LEAD_TAPS: Final = 80
"""...of which 10 ms precede the delay that was found."""
WEIGHT_BLOCK: Final = 160
"""Samples that share one weight, 20 ms."""
FIT_UNIT: Final = 1280
MAX_FIT_UNITS: Final = 5
"""Units of 160 ms that a fit uses."""
CG_STEPS: Final = 8
PRIOR_PRECISION: Final = 16.0
"""Inverse of an echo's power gain before anything is known of it."""
PRIOR_DECAY: Final = 400.0
"""Samples in which the prior's variance falls to a third."""
FLAT_PRIOR_SHARE: Final = 0.6
"""Share of the prior that does not follow what was found."""
SMOOTHING: Final = 65
NOISE_FLOOR_POWER: Final = 10 ** (-66 / 10)
"""Least power of the line's noise."""
_AT: Final = np.maximum(np.arange(TAPS) - LEAD_TAPS, 0)
_PRIOR: Final[Floats] = (np.exp(-_AT / PRIOR_DECAY) / np.exp(-_AT / PRIOR_DECAY).sum()).astype(
    np.float32
)
_SMOOTH: Final[Floats] = np.full(SMOOTHING, 1 / SMOOTHING, np.float32)


class EchoCanceller:
    """Adaptive filter of one path: ``sent`` and ``heard`` share an axis (pure)."""

    def __init__(self, sent: SampleTimeline, heard: SampleTimeline, delay: int) -> None:
        self.delay = delay - LEAD_TAPS
        """Index heard less index sent, of the first tap."""
        self.taps: Floats = np.zeros(TAPS, np.float32)
        """Impulse response of the path, shape [TAPS]."""
        self._sent = sent
        self._heard = heard

    @property
    def gain(self) -> float:
        return float(self.taps @ self.taps)

    def echo(self, start: int, stop: int) -> Floats:
        line = self._sent.get(start - self.delay - TAPS + 1, stop - self.delay)
        echo: Floats = np.convolve(line, self.taps, mode="valid")
        return echo

    def shift(self, samples: int) -> None:
        self.delay += samples

    def excitation(self, stop: int, count: int) -> Floats:
        return self._sent.get(stop - self.delay - count, stop - self.delay)

    def fit(self, since: int, stop: int, steps: int = CG_STEPS) -> float:
        """Fit to ``heard`` in ``[since, stop)``, at most `MAX_FIT_UNITS` back.

        Returns the residual's power relative to before; 1 below 160 ms, or without sent sound.
        """
        units = min(MAX_FIT_UNITS, (stop - since) // FIT_UNIT)
        if units < 1:
            return 1.0
        count = units * FIT_UNIT
        start = stop - count
        line = self._sent.get(start - self.delay - TAPS + 1, stop - self.delay)
        if float(line @ line) <= NOISE_FLOOR_POWER * count:
            return 1.0
        size = count + TAPS
        ours = np.fft.rfft(line, size)
        backwards = np.conj(ours)
        padded = np.zeros(size, np.float32)

        def forth(taps: Floats) -> Floats:
            echo = np.fft.irfft(ours * np.fft.rfft(taps, size), size)[TAPS - 1 : size - 1]
            return echo.astype(np.float32, copy=False)

        def back(rest: Floats) -> Floats:
            padded[TAPS - 1 : size - 1] = rest
            products = np.fft.irfft(backwards * np.fft.rfft(padded), size)[:TAPS]
            return products.astype(np.float32, copy=False)

        rest = self._heard.get(start, stop) - forth(self.taps)
        powers = np.square(rest).reshape(-1, WEIGHT_BLOCK).mean(axis=1)
        weights = np.repeat(1 / (powers + np.float32(NOISE_FLOOR_POWER)), WEIGHT_BLOCK)
        scale = np.sqrt(self._prior())
        left = scale * back(weights * rest)
        move = np.zeros(TAPS, np.float32)
        direction, norm = left.copy(), float(left @ left)
        for _ in range(steps):
            if norm <= 1e-6:
                break
            image = scale * back(weights * forth(scale * direction))
            image += np.float32(PRIOR_PRECISION) * direction
            length = np.float32(norm / float(direction @ image))
            move += length * direction
            left -= length * image
            before, norm = norm, float(left @ left)
            direction = left + np.float32(norm / before) * direction
        move *= scale
        self.taps = self.taps + move
        after = rest - forth(move)
        return min(1.0, float(after @ after) / (float(rest @ rest) + NOISE_FLOOR_POWER))

    def _prior(self) -> Floats:
        squares = np.convolve(np.square(self.taps), _SMOOTH, mode="same")
        total = float(squares.sum())
        if total <= 1e-6:
            return _PRIOR
        prior: Floats = np.asarray(
            FLAT_PRIOR_SHARE * _PRIOR + (1 - FLAT_PRIOR_SHARE) / total * squares, np.float32
        )
        return prior


HIGH_PASS_TAPS: Final = 65
"""4 ms of delay at 8 kHz; 30 dB down at 100 Hz."""
CUTOFF_HZ: Final = 270.0
_HIGH_PASS_AT = np.arange(HIGH_PASS_TAPS) - HIGH_PASS_TAPS // 2
_LOW = np.sinc(2 * CUTOFF_HZ / 8000 * _HIGH_PASS_AT) * np.kaiser(HIGH_PASS_TAPS, 4.0)
_LOW /= _LOW.sum()
_FILTER: Final = (np.where(_HIGH_PASS_AT == 0, 1.0, 0.0) - _LOW).astype(np.float32)


class HighPass:
    """High-pass at 8 kHz: the telephone passes voice from 300 Hz on (pure)."""

    def __init__(self) -> None:
        self._before = np.zeros(HIGH_PASS_TAPS - 1, np.float32)

    def push(self, sound: Floats) -> Floats:
        line = np.concatenate((self._before, sound))
        self._before = line[-(HIGH_PASS_TAPS - 1) :]
        above: Floats = np.convolve(line, _FILTER, mode="valid")
        return above

    def reset(self) -> None:
        self._before = np.zeros(HIGH_PASS_TAPS - 1, np.float32)
