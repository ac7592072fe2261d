"""How many syllables a voice has said: the rises and falls of its level, counted. Pure.

The count over the syllables of the text hardly depends on the rate of speech or the language
(benchmarks/alignment.py): it tells how fast an unknown voice speaks after a few words.
"""

from __future__ import annotations

from collections import deque

from .pauses import DECAY_DB

SMOOTH_BLOCKS = 5
"""Blocks of 10 ms that are averaged: shorter than a syllable."""
FALL_DB = 3.0
"""A syllable is over when the level has fallen so far below its peak; the next begins when it has
risen so far from the valley."""
SYLLABLE_DEPTH_DB = 25.0
"""A peak lies at most this far below the loudest of late."""
SILENT_DB = -90.0
"""Softer than this is all the same."""


class Syllables:
    """Counts syllables block by block (10 ms)."""

    def __init__(self) -> None:
        self.peaks: list[float] = []
        """Where each syllable was loudest, in voiced blocks."""
        self._last: deque[float] = deque([SILENT_DB] * SMOOTH_BLOCKS)
        self._sum = SILENT_DB * SMOOTH_BLOCKS
        self._rising = True
        self._extreme_db = SILENT_DB
        """Of the smoothed level: the highest while it rises, the lowest while it falls."""
        self._at = 0.0
        """Where that was."""
        self._peak_db = -30.0

    @property
    def count(self) -> int:
        """Syllables so far."""
        return len(self.peaks)

    def take(self, level_db: float, voiced: float) -> None:
        """The level of the next block, dBFS, and the voiced blocks before it."""
        if level_db < SILENT_DB:
            level_db = SILENT_DB
        self._last.append(level_db)
        self._sum += level_db - self._last.popleft()
        smooth_db = self._sum / SMOOTH_BLOCKS
        self._peak_db -= DECAY_DB
        if smooth_db > self._peak_db:
            self._peak_db = smooth_db
        if self._rising:
            if smooth_db > self._extreme_db:
                self._extreme_db, self._at = smooth_db, voiced - SMOOTH_BLOCKS // 2
            elif smooth_db < self._extreme_db - FALL_DB:
                if self._extreme_db > self._peak_db - SYLLABLE_DEPTH_DB:
                    self.peaks.append(max(self._at, 0.0))
                self._rising, self._extreme_db = False, smooth_db
        elif smooth_db < self._extreme_db:
            self._extreme_db = smooth_db
        elif smooth_db > self._extreme_db + FALL_DB:
            self._rising, self._extreme_db = True, smooth_db
            self._at = voiced - SMOOTH_BLOCKS // 2
