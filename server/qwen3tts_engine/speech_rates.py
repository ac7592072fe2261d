"""How fast a voice speaks: kept from one clause to the next, and found while it speaks. Pure.

A rate is a time for each unit of a text (word_units), of voiced time: pauses do not count. Relative
standard deviations are those seen over the voices, rates and languages of benchmarks/alignment.py.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable

USUAL_SD = 0.3
"""Of a voice's rate from its language's usual one."""
KNOWN_SD = 0.15
"""Of a clause's rate from that of the voice's last clause."""
SYLLABLES_SD = 0.1
"""Of syllables heard from units of the text, in an utterance as a whole,"""
SYLLABLE_SD = 0.4
"""and for a single one."""
WORDS_SD = 0.3
"""Of the length of words of one unit from their units."""
ANCHORS_SD = 0.02
"""Of a rate found between anchors, however many words lie there."""
SLOWEST = 3.0
"""No voice is believed to be slower, in times the usual, however few its syllables."""
FASTEST = 0.5
"""No voice is believed to be faster, in times the usual length."""
FEWEST_SYLLABLES = 3
"""Fewer say nothing."""


class SpeechRates:
    """The rate of each voice as last heard, for its next clause. Bounded; the least recently used
    goes first."""

    def __init__(self, most: int = 1024) -> None:
        self._most = most
        self._rates: OrderedDict[Hashable, float] = OrderedDict()

    def get(self, voice: Hashable) -> float | None:
        """Seconds a unit."""
        if voice in self._rates:
            self._rates.move_to_end(voice)
        return self._rates.get(voice)

    def put(self, voice: Hashable, unit_s: float) -> None:
        """What the last clause of a voice showed."""
        self._rates[voice] = unit_s
        self._rates.move_to_end(voice)
        while len(self._rates) > self._most:
            self._rates.popitem(last=False)


class SpeechRate:
    """The rate of one clause, from three sides: what was known before, the syllables heard, and
    what lay between anchors. They are weighted by how sure each is.

    Args:
        usual: voiced blocks a unit, as usual in the language.
        known: the same, of the voice's last clause.
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
        """So many syllables have been said in so many voiced blocks."""
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
        """So many units took so many voiced blocks."""
        if units > 0 and blocks > 0:
            self.anchored_units += units
            self._anchored_blocks += blocks

    def cost(self, units: float, blocks: float, syllables: int) -> float:
        """How badly a piece of the text fits a piece of the sound, in squared deviations."""
        spread = self.sd**2 + WORDS_SD**2 / units
        cost = math.log(blocks / (units * self.blocks)) ** 2 / spread
        if syllables:
            spread = SYLLABLES_SD**2 + SYLLABLE_SD**2 / units
            cost += math.log(syllables / units) ** 2 / spread
        return cost
