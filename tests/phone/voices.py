"""Sounds for the tests of what is heard."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.int16]


def tone(hz: float, rate_hz: int, seconds: float, peak: float = 8000.0) -> Samples:
    """A sine."""
    time = np.arange(round(seconds * rate_hz)) / rate_hz
    return np.rint(peak * np.sin(2 * np.pi * hz * time)).astype(np.int16)


def voice(rate_hz: int, seconds: float, pitch_hz: float = 125.0) -> Samples:
    """A vowel: a pitch and its harmonics up to 2 kHz."""
    time = np.arange(round(seconds * rate_hz)) / rate_hz
    count = int(2000 / pitch_hz)
    sines = (np.sin(2 * np.pi * pitch_hz * k * time + k * k) / k for k in range(1, count + 1))
    return np.rint(4000 * sum(sines, np.zeros(len(time)))).astype(np.int16)


def hiss(samples: int, rms: float, seed: int = 1) -> Samples:
    """White noise."""
    drawn = np.random.default_rng(seed).normal(0.0, rms, samples)
    return np.clip(np.rint(drawn), -32768, 32767).astype(np.int16)


def rms(samples: Samples) -> float:
    """The root mean square."""
    return float(np.sqrt(np.mean(samples.astype(np.float64) ** 2)))


def step(samples: Samples) -> float:
    """The largest step from one sample to the next: a click is one."""
    return float(np.abs(np.diff(samples.astype(np.float64))).max())
