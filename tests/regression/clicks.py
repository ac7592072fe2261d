"""Do the places where pieces of sound meet sound like the places where none do?

A click is a step between two samples that is unusual *there*. So each step is set beside the usual
step of its own 20 ms, and the joints' steps are ranked among all others: without clicks a joint's
rank is as good as drawn. A score over the whole signal (its largest step, or a high percentile)
cannot see a click that is smaller than the loudest consonant, and says nothing about where it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]
WINDOW = 480
"""Samples (20 ms at 24 kHz) whose mean step is the usual one."""
FLOOR = 3e-5
"""Added to the usual step: below a step of 16 bits nothing is heard, nor is it our fault."""
AROUND = 32
"""Samples on each side of a joint in which an error counts as the joint's."""
EXACT = 1e-6
"""Error that rounding makes, of full scale."""


@dataclass(frozen=True)
class Clicks:
    """What the joints of a signal have that the rest has not."""

    joints: int
    excess_sigma: float
    """How many standard deviations the joints' ranks lie above those of places drawn by lot."""
    ratio: float
    """95th percentile of the joints' steps, each over the usual step there, over that elsewhere."""
    worst: float
    """The largest of them over the 99.9th percentile elsewhere."""

    @property
    def heard(self) -> bool:
        """Whether there is something: one place in millions without clicks."""
        return self.excess_sigma > 5 or self.worst > 3


def clicks_at(samples: Samples, joints: NDArray[np.int64]) -> Clicks:
    """Look at the steps into the samples numbered ``joints``, each the first of a piece."""
    step = np.abs(np.diff(samples.astype(np.float64)))
    sums = np.concatenate([[0.0], np.cumsum(step)])
    start = np.clip(np.arange(len(step)) - WINDOW // 2, 0, None)
    end = np.clip(start + WINDOW, None, len(step))
    # Without the step itself, so that a click does not excuse itself.
    usual = (sums[end] - sums[start] - step) / np.maximum(end - start - 1, 1)
    relative = step / (usual + FLOOR)
    at = joints[(joints > 0) & (joints <= len(step))] - 1
    elsewhere = np.ones(len(step), dtype=bool)
    for near in (-1, 0, 1):
        elsewhere[np.clip(at + near, 0, len(step) - 1)] = False
    others = np.sort(relative[elsewhere])
    if not len(at) or not len(others):
        return Clicks(0, 0.0, 1.0, 0.0)
    mine = relative[at]
    above = len(others) - np.searchsorted(others, mine, side="left")
    # Minus the logarithm of a uniform number has mean 1 and variance 1.
    surprise = -np.log((above + 0.5) / (len(others) + 1))
    return Clicks(
        joints=len(at),
        excess_sigma=float((surprise.mean() - 1) * np.sqrt(len(at))),
        ratio=float(np.percentile(mine, 95) / max(np.percentile(others, 95), 1e-12)),
        worst=float(mine.max() / max(np.percentile(others, 99.9), 1e-12)),
    )


def joint_error(samples: Samples, wanted: Samples, joints: NDArray[np.int64]) -> float:
    """Error around the joints over the error elsewhere, both rms: 1 where joints do no harm.

    For what leaves no step: a crossfade of samples that belong to different times.
    """
    length = min(len(samples), len(wanted))
    error = (samples[:length].astype(np.float64) - wanted[:length]) ** 2
    near = np.zeros(length, dtype=bool)
    for joint in joints[(joints > 0) & (joints < length)]:
        near[max(joint - AROUND, 0) : joint + AROUND] = True
    if near.all() or not near.any():
        return 1.0
    inside, outside = np.sqrt(error[near].mean()), np.sqrt(error[~near].mean())
    return float((inside + EXACT) / (outside + EXACT))
