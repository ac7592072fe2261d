"""Sound as one line of figures each 10 ms: how loud it is, and which tone it is, if it is one.

The short spectrum has bins of 25 Hz whatever the sample rate, so that all that is built on it
(call-progress tones, beeps, answering machines) holds for any codec.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

RATES_HZ: Final = (8000, 16000, 24000, 48000)
HOP_S: Final = 0.01
WINDOW_S: Final = 0.04
"""A Hann window: a tone fills 4 bins of 25 Hz."""
BIN_HZ: Final = 25.0
LOW_HZ: Final = 225.0
HIGH_HZ: Final = 3700.0
"""What the telephone lets through, without the hum of the mains and its overtones below."""
LOBE: Final = 2
"""Bins on each side of a peak that belong to it."""
SILENCE_DBFS: Final = -100.0


@dataclass(frozen=True, slots=True)
class Moment:
    """10 ms of sound."""

    at_s: float
    """Its end, seconds of sound since the beginning."""
    level_dbfs: float
    """Root mean square of these 10 ms."""
    hz: float
    """Frequency of the strongest peak of the last 40 ms."""
    share: float
    """Of the power between 225 and 3700 Hz, what this peak has: 1 = a pure tone."""
    second_hz: float
    """The next strongest peak."""
    pair: float
    """Share of both peaks: 1 = one tone, or two."""


class Spectrum:
    """Samples in, moments out; holds 40 ms (pure)."""

    def __init__(self, rate_hz: int = 8000) -> None:
        if rate_hz not in RATES_HZ:
            raise ValueError(f"rate_hz={rate_hz}: {', '.join(map(str, RATES_HZ))}")
        self._hop = round(rate_hz * HOP_S)
        self._size = round(rate_hz * WINDOW_S)
        self._window = np.hanning(self._size + 1)[:-1]
        self._first = round(LOW_HZ / BIN_HZ)
        self._last = round(HIGH_HZ / BIN_HZ)
        self._held: NDArray[np.float64] = np.zeros(self._size - self._hop)
        self._count = 0

    def push(self, samples: NDArray[np.int16]) -> list[Moment]:
        """Take linear samples, shape [n], any n; a moment for each 10 ms that is complete."""
        sound = np.concatenate([self._held, samples.astype(np.float64) / 32768.0])
        hops = (len(sound) - (self._size - self._hop)) // self._hop
        if hops <= 0:
            self._held = sound
            return []
        self._held = sound[hops * self._hop :]
        frames = np.lib.stride_tricks.sliding_window_view(sound, self._size)[:: self._hop][:hops]
        power = np.abs(np.fft.rfft(frames * self._window, axis=1)) ** 2
        levels = np.mean(frames[:, -self._hop :] ** 2, axis=1)
        return [self._moment(row, float(level)) for row, level in zip(power, levels, strict=True)]

    def _moment(self, power: NDArray[np.float64], level: float) -> Moment:
        self._count += 1
        at_s = self._count * HOP_S
        dbfs = max(SILENCE_DBFS, 10 * float(np.log10(level))) if level > 0 else SILENCE_DBFS
        band = power[self._first : self._last + 1].copy()
        total = float(band.sum())
        if total <= 1e-9:
            return Moment(at_s, dbfs, 0.0, 0.0, 0.0, 0.0)
        hz, strongest = self._take_peak(power, band)
        second_hz, second = self._take_peak(power, band)
        share = strongest / total
        return Moment(at_s, dbfs, hz, share, second_hz, share + second / total)

    def _take_peak(
        self, power: NDArray[np.float64], band: NDArray[np.float64]
    ) -> tuple[float, float]:
        """Frequency and power of the strongest peak of ``band``, which loses it."""
        peak = int(np.argmax(band))
        low, high = max(0, peak - LOBE), peak + LOBE + 1
        own = float(band[low:high].sum())
        band[low:high] = 0.0
        where = peak + self._first
        # The parabola through the logarithms of three bins finds a tone within some Hz.
        left, mid, right = (float(np.log(power[where + step] + 1e-30)) for step in (-1, 0, 1))
        bend = left - 2 * mid + right
        shift = 0.5 * (left - right) / bend if bend < 0 else 0.0
        return (where + min(max(shift, -0.5), 0.5)) * BIN_HZ, own
