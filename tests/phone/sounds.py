"""Sounds of a telephone line for the tests of detectors: tones, pauses, something like speech."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Pcm = NDArray[np.int16]


def quiet(seconds: float, rate_hz: int = 8000) -> Pcm:
    """Nothing."""
    return np.zeros(round(seconds * rate_hz), np.int16)


def tone(hz: float | tuple[float, ...], seconds: float, rate_hz: int = 8000) -> Pcm:
    """One tone, or several at once, -18 dB of full scale, with edges of 4 ms."""
    each = hz if isinstance(hz, tuple) else (hz,)
    at = np.arange(round(seconds * rate_hz)) / rate_hz
    wave = np.sum([np.sin(2 * np.pi * one * at) for one in each], axis=0) * 4000 / len(each)
    edge = round(0.004 * rate_hz)
    ramp = np.linspace(0, 1, edge)
    wave[:edge] *= ramp
    wave[-edge:] *= ramp[::-1]
    samples: Pcm = np.rint(wave).astype(np.int16)
    return samples


def speech(seconds: float, rate_hz: int = 8000, seed: int = 1) -> Pcm:
    """Syllables of 0.2 s: harmonics of a pitch that moves, through formants, with noise."""
    chance = np.random.default_rng(seed)
    count = round(seconds * rate_hz)
    at = np.arange(count) / rate_hz
    pitch = 120 + 25 * np.sin(2 * np.pi * 0.7 * at)
    phase = 2 * np.pi * np.cumsum(pitch) / rate_hz
    wave = np.zeros(count)
    for harmonic in range(1, 25):
        formant = 1 / (1 + ((harmonic * 120 - 600) / 500) ** 2)
        wave += np.sin(harmonic * phase) * formant
    envelope = 0.55 + 0.45 * np.sin(2 * np.pi * 5 * at)
    wave = wave * envelope + 0.05 * chance.normal(size=count)
    samples: Pcm = np.rint(wave / np.abs(wave).max() * 9000).astype(np.int16)
    return samples


def noise(seconds: float, dbfs: float, rate_hz: int = 8000, seed: int = 2) -> Pcm:
    """White noise."""
    chance = np.random.default_rng(seed)
    wave = chance.normal(size=round(seconds * rate_hz)) * 32768 * 10 ** (dbfs / 20)
    samples: Pcm = np.rint(wave).clip(-32768, 32767).astype(np.int16)
    return samples
