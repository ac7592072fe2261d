"""Weights and sound by formula, the same on every machine: what golden numbers rest on."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

RATE = 24_000
"""Hertz."""


def tensor(name: str, shape: Iterable[int]) -> Tensor:
    """A tensor of a model, float32: as large as such a tensor is by habit, and never twice."""
    shape = tuple(shape)
    index = np.arange(math.prod(shape), dtype=np.float64)
    values = np.sin(index * 0.7311 + (index % 97) ** 2 + zlib.crc32(name.encode()) % 997)
    if name.endswith(("norm.weight", "scale", "cluster_usage")):
        values = 1 + 0.5 * values
    elif name.endswith("bias"):
        values = 0.1 * values
    elif not name.endswith("embed_sum"):
        values *= math.sqrt(2 / math.prod(shape[1:]))
    return torch.from_numpy(values.astype(np.float32)).reshape(shape)


def voice(samples: int, rate: int = RATE) -> NDArray[np.float32]:
    """Something like a vowel that rises and falls, shape [samples], about -17 dBFS."""
    time = np.arange(samples, dtype=np.float64) / rate
    phase = 2 * np.pi * (140 * time + 3 * np.sin(2 * np.pi * 1.5 * time))
    tone = sum(np.sin(n * phase + n * n) / n for n in range(1, 12))
    swell = 0.6 + 0.4 * np.sin(2 * np.pi * 2.5 * time)
    sound: NDArray[np.float32] = (0.2 * tone * swell).astype(np.float32)
    return sound
