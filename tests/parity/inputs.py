"""Signals, codes and logits that both sides are given."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.parity.cases import DECODE_FRAMES, EXACT_TIES, SAMPLED

RATE = 24_000
EOS = 2150
"""The talker's end of speech, in published and tiny checkpoints alike."""


def voiced(seconds: float, seed: int) -> NDArray[np.float32]:
    """Harmonics of a gliding pitch under a slow envelope, with breath: no speech, but alive."""
    rng = np.random.default_rng(seed)
    at = np.arange(int(seconds * RATE)) / RATE
    pitch = 2 * np.pi * np.cumsum(140 + 40 * np.sin(2 * np.pi * 0.7 * at + seed)) / RATE
    tone = sum(rng.uniform(0.2, 1) / k * np.sin(k * pitch) for k in range(1, 25))
    envelope = 0.55 + 0.45 * np.sin(2 * np.pi * 3.1 * at)
    sound = envelope * (0.12 * tone + 0.02 * rng.standard_normal(at.size))
    return np.clip(sound, -1, 1).astype(np.float32)


def make_inputs() -> dict[str, NDArray[Any]]:
    """All arrays by name."""
    rng = np.random.default_rng(5)
    found: dict[str, NDArray[Any]] = {
        "voiced": voiced(2.03, 1),
        "long": voiced(6.41, 2),
        "short": voiced(0.31, 3),
        "whole_frames": voiced(0.08 * 13, 4),
    }
    for frames in DECODE_FRAMES:
        found[f"codes_{frames}"] = rng.integers(0, 2048, (frames, 16))
    for number in range(len(SAMPLED)):
        logits: NDArray[np.float32] = rng.standard_normal((13, 3072), np.float32) * np.float32(3)
        # The control ids and, in the first two frames, eos are the likeliest: none may be drawn.
        logits[:, 2048:] += 5
        logits[2:, EOS] = 6
        # A few codes come back again and again, for the repetition penalty's sake.
        logits[:, :8] += 8
        if number == EXACT_TIES:
            logits = np.round(logits * 2) / np.float32(2)
        found[f"logits_{number}"] = logits
    found["vector"] = rng.standard_normal(32, np.float32)
    return found
