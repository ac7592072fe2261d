"""One signal beside the one that it should be: how far off, how long, what is missing or twice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]
BLOCK = 480
"""Samples (20 ms at 24 kHz) that are looked for as one."""
REACH = 7680
"""How far from its place a block is looked for: four frames."""
ALIKE = 0.1
"""Largest error of a block, rms, over its own rms, at which it is the one looked for."""
QUIET = 1e-3
"""A block below this rms (-60 dB) is not looked for: silence is everywhere."""
BEST_DB = 200.0
"""Signal-to-noise ratio of equal signals."""


@dataclass(frozen=True)
class Difference:
    """Sample by sample, over the shorter of two signals."""

    mae: float
    """Mean absolute error, of full scale."""
    worst: float
    snr_db: float
    samples: int
    """Length of the first, less that of the second."""


def difference(samples: Samples, wanted: Samples) -> Difference:
    """How far ``samples`` is from ``wanted``."""
    length = min(len(samples), len(wanted))
    if not length:
        return Difference(0.0, 0.0, BEST_DB, len(samples) - len(wanted))
    reference = wanted[:length].astype(np.float64)
    error = samples[:length] - reference
    noise, power = float((error**2).mean()), float((reference**2).mean())
    snr = 10 * np.log10(max(power, 1e-30) / noise) if noise else BEST_DB
    return Difference(
        mae=float(np.abs(error).mean()),
        worst=float(np.abs(error).max()),
        snr_db=float(min(snr, BEST_DB)),
        samples=len(samples) - len(wanted),
    )


@dataclass(frozen=True)
class Order:
    """What of the wanted signal came when."""

    repeated: int
    """Samples that were heard again."""
    skipped: int
    """Samples that were never heard."""
    foreign_blocks: int
    """Blocks of 20 ms that are nowhere near in the wanted signal."""


def order(samples: Samples, wanted: Samples) -> Order:
    """Follow ``samples`` through ``wanted``, block by block.

    A block that is not where the last one went on is looked for nearby: behind its place, something
    was left out; before it, something came twice.
    """
    lag = repeated = skipped = foreign = 0
    for start in range(0, len(samples) - BLOCK + 1, BLOCK):
        block = samples[start : start + BLOCK].astype(np.float64)
        power = float((block**2).mean())
        if power < QUIET**2 or _error(block, wanted, start + lag) <= ALIKE**2 * power:
            continue
        found = _nearest(block, wanted, start + lag, ALIKE**2 * power)
        if found is None:
            foreign += 1
            continue
        jump = found - start - lag
        repeated, skipped = repeated + max(-jump, 0), skipped + max(jump, 0)
        lag += jump
    return Order(repeated, skipped, foreign)


def _error(block: NDArray[np.float64], wanted: Samples, at: int) -> float:
    """Mean square distance; infinite outside the signal."""
    if at < 0 or at + len(block) > len(wanted):
        return float("inf")
    return float(((block - wanted[at : at + len(block)]) ** 2).mean())


def _nearest(block: NDArray[np.float64], wanted: Samples, at: int, limit: float) -> int | None:
    """The start nearest to ``at`` from which ``wanted`` is like ``block``."""
    first = max(at - REACH, 0)
    area = wanted[first : at + REACH + len(block)].astype(np.float64)
    if len(area) < len(block):
        return None
    sums = np.concatenate([[0.0], np.cumsum(area**2)])
    energy = sums[len(block) :] - sums[: -len(block)]
    product = np.correlate(area, block, mode="valid")
    distance = (energy + float((block**2).sum()) - 2 * product) / len(block)
    like = np.flatnonzero(distance <= limit)
    if not len(like):
        return None
    nearest = like[np.argmin(np.abs(like + first - at))]
    # Of the neighbours that are alike as well, the best.
    near = like[np.abs(like - nearest) <= BLOCK // 8]
    return int(near[np.argmin(distance[near])]) + first


@dataclass(frozen=True)
class Level:
    """Whether a signal is something that one may play to somebody."""

    finite: bool
    rms: float
    peak: float
    clipped: float
    """Share of samples at full scale."""
    offset: float
    """Mean."""
    silent: float
    """Share of 20 ms blocks below -60 dB."""

    @property
    def sane(self) -> bool:
        """Finite, within full scale, neither silence nor a wall, no direct current."""
        return (
            self.finite
            and self.peak <= 1.0
            and 0.003 < self.rms < 0.6
            and self.clipped < 0.01
            and abs(self.offset) < 0.05
            and self.silent < 0.9
        )


def level(samples: Samples) -> Level:
    """Measure one signal."""
    if not len(samples) or not np.isfinite(samples).all():
        return Level(bool(len(samples) == 0), 0.0, 0.0, 0.0, 0.0, 1.0)
    wide = samples.astype(np.float64)
    blocks = wide[: len(wide) // BLOCK * BLOCK].reshape(-1, BLOCK)
    quiet = np.sqrt((blocks**2).mean(axis=1)) < QUIET
    return Level(
        finite=True,
        rms=float(np.sqrt((wide**2).mean())),
        peak=float(np.abs(wide).max()),
        clipped=float((np.abs(wide) >= 32767 / 32768).mean()),
        offset=float(wide.mean()),
        silent=float(quiet.mean()) if len(quiet) else 0.0,
    )
