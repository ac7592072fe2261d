"""Where a voice pauses: silence in sound that arrives in chunks of any size. Pure.

Sound is judged in blocks of 10 ms. Silence is what lies far below the loudest of the last seconds;
a stretch of it that is longer than the closure of a consonant is a pause. Time without the pauses
is *voiced* time: words take it up one after the other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwen3tts_engine.guards import BLOCK, SAMPLE_RATE, full_scale

BLOCK_S = BLOCK / SAMPLE_RATE
PAUSE_BLOCKS = 12
"""Shortest pause: 120 ms."""
DEPTH_DB = 28.0
"""Silence lies this far below the loudest of late."""
FLOOR_DB = -58.0
"""What is softer than this is silence in any case, and what is louder than CEILING_DB never."""
CEILING_DB = -38.0
DECAY_DB = 0.04
"""By how much the loudest is forgotten with each block."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Some silence."""

    start: int
    """First block."""
    voiced: int
    """Voiced blocks before it."""


class Pauses:
    """The pauses of some sound, and its clock without them. Counts blocks of 10 ms."""

    def __init__(self) -> None:
        self.blocks = 0
        """Blocks judged."""
        self.voiced = 0
        """Of these, voiced ones: short silences too."""
        self.last_voice = 0
        """Block after the last that was not silent."""
        self.found: list[Pause] = []
        self._before: list[int] = []
        """Voiced blocks before each pause."""
        self._skipped = [0]
        """Blocks in the pauses up to each one; one entry more than pauses."""
        self._run = 0
        """Silent blocks up to now."""
        self._peak_db = -30.0
        self._rest: NDArray[Any] | None = None

    def levels(self, samples: NDArray[Any]) -> list[float]:
        """Take samples [n]: the levels in dBFS of the blocks that are complete with them."""
        if self._rest is not None and len(self._rest):
            samples = np.concatenate((self._rest, samples))
        whole = len(samples) // BLOCK * BLOCK
        self._rest = samples[whole:].copy()
        if not whole:
            return []
        scaled = samples[:whole].reshape(-1, BLOCK).astype(np.float64) / full_scale(samples)
        power = np.mean(np.square(scaled), axis=1)
        levels: list[float] = (10 * np.log10(power + 1e-18)).tolist()
        return levels

    def take(self, level_db: float) -> Pause | None:
        """Judge the next block; the pause that has become one with it."""
        self.blocks += 1
        self._peak_db -= DECAY_DB
        if level_db > self._peak_db:
            self._peak_db = level_db
        # Comparisons, for this runs a hundred times in each second of sound.
        threshold_db = self._peak_db - DEPTH_DB
        if (level_db >= threshold_db and level_db >= FLOOR_DB) or level_db >= CEILING_DB:
            self._run = 0
            self.last_voice = self.blocks
            self.voiced += 1
            return None
        self._run += 1
        if self._run < PAUSE_BLOCKS:
            self.voiced += 1
            return None
        if self._run > PAUSE_BLOCKS:
            self._skipped[-1] += 1
            return None
        self.voiced -= PAUSE_BLOCKS - 1
        pause = Pause(self.blocks - PAUSE_BLOCKS, self.voiced)
        self.found.append(pause)
        self._before.append(self.voiced)
        self._skipped.append(self._skipped[-1] + PAUSE_BLOCKS)
        return pause

    def starts_at(self, voiced: float) -> float:
        """The block at which a word begins, given the voiced blocks before it: after a pause."""
        return voiced + self._skipped[bisect_right(self._before, voiced)]

    def ends_at(self, voiced: float) -> float:
        """The block at which a word ends: before a pause."""
        return voiced + self._skipped[bisect_left(self._before, voiced)]

    def voiced_at(self, block: float) -> float:
        """Voiced blocks before a block."""
        index = bisect_left(self.found, block, key=lambda pause: pause.start)
        if index and block < self.ends_of(index - 1):
            return self.found[index - 1].voiced
        return block - self._skipped[index]

    def ends_of(self, index: int) -> int:
        """Block at which a pause ends; the present one while it lasts."""
        return self.found[index].start + self.length_of(index)

    def length_of(self, index: int) -> int:
        """Blocks in a pause, as far as it has come; the last one is -1."""
        index %= len(self.found)
        return self._skipped[index + 1] - self._skipped[index]
