"""Pauses, syllables and speaking rate of chunked sound."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque
from collections.abc import Hashable
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
"""Level below which all is silence; above CEILING_DB nothing is."""
CEILING_DB = -38.0
DECAY_DB = 0.04
"""By how much the loudest is forgotten with each block."""


@dataclass(frozen=True, slots=True)
class Pause:
    start: int
    """First block."""
    voiced: int
    """Voiced blocks before it."""


class Pauses:
    """Pauses in blocks of 10 ms, and voiced time."""

    def __init__(self) -> None:
        self.blocks = 0
        """Blocks judged."""
        self.voiced = 0
        """Voiced ones of these, with short silences."""
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
        """Take samples [n]; return complete blocks' levels in dBFS."""
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
        """Take a block's level; return the pause that begins to count."""
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
        """Return a word's first block (after a pause), by voiced blocks before."""
        return voiced + self._skipped[bisect_right(self._before, voiced)]

    def ends_at(self, voiced: float) -> float:
        """Return a word's end block (before a pause), by voiced blocks before."""
        return voiced + self._skipped[bisect_left(self._before, voiced)]

    def voiced_at(self, block: float) -> float:
        index = bisect_left(self.found, block, key=lambda pause: pause.start)
        if index and block < self.ends_of(index - 1):
            return self.found[index - 1].voiced
        return block - self._skipped[index]

    def ends_of(self, index: int) -> int:
        """Return a pause's end block; the present one while it lasts."""
        return self.found[index].start + self.length_of(index)

    def length_of(self, index: int) -> int:
        index %= len(self.found)
        return self._skipped[index + 1] - self._skipped[index]


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
    """Syllable counter by rises and falls of the level (10 ms blocks).

    The ratio of this count to the text's syllables hardly depends on rate or language
    (benchmarks/alignment.py), so a few words show an unknown voice's rate.
    """

    def __init__(self) -> None:
        self.peaks: list[float] = []
        """Loudest place of each syllable, in voiced blocks."""
        self._last: deque[float] = deque([SILENT_DB] * SMOOTH_BLOCKS)
        self._sum = SILENT_DB * SMOOTH_BLOCKS
        self._rising = True
        self._extreme_db = SILENT_DB
        """Extreme of the smoothed level: highest while rising, lowest while falling."""
        self._at = 0.0
        self._peak_db = -30.0

    @property
    def count(self) -> int:
        return len(self.peaks)

    def take(self, level_db: float, voiced: float) -> None:
        """Take a block's level in dBFS, and the voiced blocks before it."""
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


USUAL_SD = 0.3
"""Deviation of a voice's rate from its language's usual one."""
KNOWN_SD = 0.15
"""Deviation of a clause's rate from the voice's last clause."""
SYLLABLES_SD = 0.1
"""Deviation of syllables heard from text units, in a whole utterance,"""
SYLLABLE_SD = 0.4
"""and for a single one."""
WORDS_SD = 0.3
"""Deviation of one-unit words' length from their units."""
ANCHORS_SD = 0.02
"""Deviation of a rate between anchors, for any number of words."""
SLOWEST = 3.0
"""No voice is believed to be slower, in times the usual, however few its syllables."""
FASTEST = 0.5
"""No voice is believed to be faster, in times the usual length."""
FEWEST_SYLLABLES = 3
"""Fewer say nothing."""


class SpeechRates:
    def __init__(self, most: int = 1024) -> None:
        self._most = most
        self._rates: OrderedDict[Hashable, float] = OrderedDict()

    def get(self, voice: Hashable) -> float | None:
        if voice in self._rates:
            self._rates.move_to_end(voice)
        return self._rates.get(voice)

    def put(self, voice: Hashable, unit_s: float) -> None:
        self._rates[voice] = unit_s
        self._rates.move_to_end(voice)
        while len(self._rates) > self._most:
            self._rates.popitem(last=False)


class SpeechRate:
    """Rate of one clause, weighted from prior, syllables and anchors.

    Standard deviations are relative, of benchmarks/alignment.py.

    Args:
        usual: voiced blocks a unit in the language.
        known: the same of the voice's last clause.
    """

    def __init__(self, usual: float, known: float | None) -> None:
        self.prior_blocks = usual if known is None else known
        """Voiced blocks a unit before anything of the clause was heard."""
        self._prior = math.log(self.prior_blocks)
        self._weight = 1 / (USUAL_SD if known is None else KNOWN_SD) ** 2
        self.anchored_units = 0.0
        """Units between anchors."""
        self._anchored_blocks = 0.0
        self.blocks = self.prior_blocks
        """Voiced blocks a unit."""
        self.sd = 0.0
        """Relative standard deviation of that."""
        self.hear(0, 0)

    def hear(self, syllables: int, voiced: float) -> None:
        total, mean = self._weight, self._weight * self._prior
        if syllables >= FEWEST_SYLLABLES:
            weight = 1 / (SYLLABLES_SD**2 + SYLLABLE_SD**2 / syllables)
            total += weight
            mean += weight * math.log(voiced / syllables)
        if self.anchored_units > 0:
            weight = 1 / (ANCHORS_SD**2 + WORDS_SD**2 / self.anchored_units)
            total += weight
            mean += weight * math.log(self._anchored_blocks / self.anchored_units)
        self.blocks, self.sd = math.exp(mean / total), math.sqrt(1 / total)

    def anchor(self, units: float, blocks: float) -> None:
        if units > 0 and blocks > 0:
            self.anchored_units += units
            self._anchored_blocks += blocks

    def cost(self, units: float, blocks: float, syllables: int) -> float:
        spread = self.sd**2 + WORDS_SD**2 / units
        cost = math.log(blocks / (units * self.blocks)) ** 2 / spread
        if syllables:
            spread = SYLLABLES_SD**2 + SYLLABLE_SD**2 / units
            cost += math.log(syllables / units) ** 2 / spread
        return cost
