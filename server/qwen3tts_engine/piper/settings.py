"""Settings of the engine ``piper``."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

SCALES = {"length_scale": (0.1, 10.0), "noise_scale": (0.0, 10.0), "noise_w": (0.0, 10.0)}
"""Bounds of the scales."""


def default_workers() -> int:
    """One for each core, from 1 to 4."""
    return max(1, min(4, os.cpu_count() or 1))


@dataclass(frozen=True, slots=True)
class PiperSettings:
    """Settings of voices in Piper's format, each of which is in the memory of every worker.

    Raises:
        ValueError: a value is out of its range.
    """

    voices: tuple[str, ...] = ()
    """Voices on offer: folders, ``.onnx`` files, packages, or names such as
    ``de_DE-thorsten-medium``; empty: those of installed packages."""
    voice: str = ""
    """What speaks where a request names neither voice nor language, with ``#SPEAKER`` where it has
    several; empty: the first of ``voices``."""
    length_scale: float | None = None
    """Factor on the duration of phonemes; None: the voice's own, as for the next two."""
    noise_scale: float | None = None
    """Variation of the sound."""
    noise_w: float | None = None
    """Variation of the durations."""
    workers: int = 0
    """Number of processes, of one thread each; 0 for ``default_workers()``."""
    lead_ms: float = 3000.0
    """Sound made ahead of a listener where the context names no ``lead_ms``; then others come
    first, and what is cancelled was not made for nothing."""
    max_chars: int = 5000
    """Most code points in one request."""
    attempts: int = 3
    """How often a piece of text is said before the loss of its workers is an error."""
    stall_s: float = 10.0
    """A worker that says nothing for so long within a turn is replaced."""
    start_s: float = 60.0
    """How long a worker may take to load the voices."""

    def __post_init__(self) -> None:
        for name in ("lead_ms", "max_chars", "attempts", "stall_s", "start_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)} must be above 0")
        if self.workers < 0:
            raise ValueError(f"workers={self.workers} must be 0 or above")
        for name, (low, high) in SCALES.items():
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and low <= value <= high):
                raise ValueError(f"{name}={value} must be from {low:g} to {high:g}")
