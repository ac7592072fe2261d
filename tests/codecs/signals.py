"""Signals and cuts that the codec tests share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from qwen3tts_codecs import Pcm, Resampler


def tone(hz: float, rate_hz: int, seconds: float, peak: float = 29491.0) -> Pcm:
    """A sine of ``peak`` (0.9 of full scale unless told), rounded to 16 bits."""
    time = np.arange(round(seconds * rate_hz)) / rate_hz
    return np.rint(peak * np.sin(2 * np.pi * hz * time)).astype(np.int16)


def noise(samples: int, seed: int = 1) -> Pcm:
    """White noise over the whole range of 16 bits, both limits among it."""
    pcm = np.random.default_rng(seed).integers(-32768, 32768, samples).astype(np.int16)
    pcm[: min(2, samples)] = [-32768, 32767][:samples]
    return pcm


def cut(pcm: Pcm, places: Iterable[int]) -> list[Pcm]:
    """``pcm`` in portions, cut at ``places`` (taken modulo its length, empty portions kept)."""
    edges = [0, *sorted(place % (len(pcm) + 1) for place in places), len(pcm)]
    return [pcm[start:end] for start, end in pairwise(edges)]


def places() -> st.SearchStrategy[list[int]]:
    """Where to cut: anywhere, also several times in one place."""
    return st.lists(st.integers(0, 100_000), max_size=12)


def resampled(portions: Sequence[Pcm], resampler: Resampler) -> Pcm:
    return np.concatenate([*map(resampler.push, portions), resampler.flush()])


def response(resampler: Resampler) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Frequencies up to half of ``taps_hz``, and the filter's gain at each in dB."""
    points = max(1 << 13, 1 << (8 * len(resampler.taps)).bit_length())
    gain = np.abs(np.fft.rfft(resampler.taps, points)) * resampler.from_hz / resampler.taps_hz
    hz = np.arange(len(gain)) * resampler.taps_hz / points
    return hz, 20 * np.log10(np.maximum(gain, 1e-12))


def fitted(pcm: Pcm, hz: float, rate_hz: int) -> tuple[complex, float]:
    """The sine of ``hz`` in ``pcm`` as a phasor (of sin), and the rms of what is beside it."""
    time = np.arange(len(pcm)) / rate_hz
    basis = np.stack([np.sin(2 * np.pi * hz * time), np.cos(2 * np.pi * hz * time)], axis=1)
    (sine, cosine), *_ = np.linalg.lstsq(basis, pcm.astype(np.float64), rcond=None)
    rest = pcm - basis @ np.array([sine, cosine])
    return complex(sine, cosine), float(np.sqrt(np.mean(rest**2)))


def rms(pcm: Pcm) -> float:
    return float(np.sqrt(np.mean(pcm.astype(np.float64) ** 2)))
