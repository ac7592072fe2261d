"""Word alignment by speaking rate and pauses. Pure.

Words take up voiced time in order, by expected lengths (word_units) and the voice's rate
(speech_rhythm). A pause that fits a stop in the text is an anchor that corrects the rate. A word at
a stop waits for its pause; others are reported a quarter of a second after their end. Places are in
blocks of 10 ms, of all time or of voiced time.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable
from typing import Any

from numpy.typing import NDArray

from qwen3tts_engine.alignment import AlignedWord
from qwen3tts_engine.guards import BLOCK
from qwen3tts_engine.speech_rhythm import (
    BLOCK_S,
    FASTEST,
    SLOWEST,
    SYLLABLE_SD,
    SYLLABLES_SD,
    WORDS_SD,
    Pause,
    Pauses,
    SpeechRate,
    SpeechRates,
    Syllables,
)
from qwen3tts_text.word_units import SpokenWords, usual_unit_s

FRAME_BLOCKS = 8
"""Blocks in a frame of codes."""
TURN_BLOCKS = 8
"""Words are looked for so often."""
HOLD_BLOCKS = 25.0
"""Delay of a word's report after its estimated end: a pause may still correct it;"""
HOLD = 0.5
"""and longer by this part of the deviation that the rate gives its end."""
PATIENCE_BLOCKS = 15.0
PATIENCE = (0.0, 1.5, 2.0)
"""The same where a stop follows, by its kind (none, comma, end of a sentence): its pause is worth
waiting for."""
HEARD = 0.6
"""Share by which a word moves from its even-rate place to its syllables' place."""
FIT = 16.0
"""A pause fits a stop if its cost, in squared deviations, is below this."""
SKIPPED = (0.0, 1.5, 5.0)
"""Cost of a stop without a pause, by its kind."""
LONG_BLOCKS = 25
"""A pause of this length is one whatever its end."""
STOP_BLOCKS = (1, 20, 30)
"""A pause at a stop is usually as long, by its kind; the closure of a consonant is shorter."""
SHORT = 8.0
"""Cost of a pause of no length at a stop."""
SURE = 2.0
"""Standard deviations within which 95 of 100 words lie."""
UNSAID_BLOCKS = 10.0
"""Less than this share of the text is not missed behind a pause: the estimate is no better,"""
UNSAID = 0.3
"""nor less than this part of the deviation that the rate gives the whole."""
UNSAID_TONE = 0.25
"""or than this part of what was spoken, where the sound has no syllables to count. Nothing of this
counts at the end of the text: it is reached only as far as the syllables say so."""
SURE_STOP = 1.0
"""Cost below which words up to a stop are taken as spoken though the length alone says less."""
STOP_FIT = 8.0
"""Cost below which a pause that the text goes on behind is one at a stop."""
FEWEST_HZ = 1.2
"""Fewer rises of the level a second are no syllables, and say nothing of the rate."""
LEAST_BLOCKS = 3.0
"""Deviation beside an anchor: where a pause begins is not exactly where a word ends."""


class PauseAligner:
    """WordAligner from text, speaking rate and pauses.

    Args:
        text: known text.
        ended: whether that is all of it.
        language: BCP 47 tag, for the usual rate.
        rates: of voices heard before; the clause's own is added at its end.
        voice: key of the rate.
        dropped: samples dropped at the start (guards.LeadingTrim), for ``entered``.
    """

    def __init__(
        self,
        text: str = "",
        *,
        ended: bool = False,
        language: str | None = None,
        rates: SpeechRates | None = None,
        voice: Hashable = None,
        dropped: Callable[[], int] = lambda: 0,
    ) -> None:
        self._text = SpokenWords(text, ended=ended, language=language)
        self._rates = rates
        self._voice = voice
        self._dropped = dropped
        self.pauses = Pauses()
        """The pauses of what was pushed."""
        self.syllables = Syllables()
        """Its syllables."""
        known = rates.get(voice) if rates is not None else None
        self._usual_blocks = usual_unit_s(language) / BLOCK_S
        self._rate = SpeechRate(self._usual_blocks, known and known / BLOCK_S)
        self._units = [0.0]
        """Units before each word, and before the next."""
        self._reported = 0
        """Words reported."""
        self._reported_end = 0.0
        """End of the last one, in all time,"""
        self._reported_voiced = 0.0
        """and in voiced time."""
        self._anchor = 0.0
        """The last anchor, in voiced time."""
        self._anchor_units = 0.0
        """Units before it."""
        self._anchor_syllables = 0
        self._matched = 0
        """Pauses looked at."""
        self._before = (0.0, 0.0, 0)
        """The anchor, the units before it and its syllables before the last pause was looked at."""
        self._samples = 0
        self._entered: list[tuple[int, int]] = []
        """(code point, frame): text that had entered the model."""

    # --- what comes ---

    def append(self, text: str) -> None:
        self._text.append(text)

    def end_text(self) -> None:
        self._text.end()

    def entered(self, char_end: int, frame: int) -> None:
        self._entered.append((char_end, frame))

    def push(self, samples: NDArray[Any]) -> list[AlignedWord]:
        self._samples += len(samples)
        found: list[AlignedWord] = []
        pauses = self.pauses
        for level_db in pauses.levels(samples):
            self.syllables.take(level_db, pauses.voiced)
            pauses.take(level_db)
            # A pause is looked at when it is over or long enough to be sure of.
            fresh = len(pauses.found) > self._matched and (
                pauses.last_voice == pauses.blocks or pauses.length_of(-1) >= LONG_BLOCKS
            )
            if fresh or pauses.blocks % TURN_BLOCKS == 0:
                self._rate.hear(self.syllables.count, pauses.voiced)
                self._count()
                if fresh:
                    self._matched = len(pauses.found)
                    self._before = (self._anchor, self._anchor_units, self._anchor_syllables)
                    self._match(pauses.found[-1], pauses.length_of(-1), found)
                self._report(found)
        return found

    def end(self, until: int | None = None) -> list[AlignedWord]:
        self.end_text()
        self._count()
        self._rate.hear(self.syllables.count, self.pauses.voiced)
        found: list[AlignedWord] = []
        words = self._text.words
        if until is not None:
            words = words[: bisect_left(words, until, key=lambda word: word.start)]
        if self._reported < len(words):
            last = self.pauses.voiced_at(self.pauses.last_voice)
            self._anchor_at(len(words) - 1, last, found)
        if self._rates is not None and self._rate.anchored_units > 0:
            self._rates.put(self._voice, self._rate.blocks * BLOCK_S)
        return found

    def unsaid(self) -> int | None:
        self._count()
        words = self._text.words
        if not words:
            return None
        index = self._first_unsaid()
        return None if index == len(words) else words[index].start

    def spent(self) -> bool:
        self._count()
        units = self._units[-1]
        # Without syllables only the time says it.
        if self.pauses.voiced >= SLOWEST * max(self._usual_blocks, self._rate.prior_blocks) * units:
            return True
        count = self.syllables.count
        spread = SURE * math.hypot(SYLLABLES_SD * count, SYLLABLE_SD * math.sqrt(count))
        return count - spread >= units and self.pauses.voiced >= units * self._rate.blocks

    def too_short(self) -> bool:
        self._count()
        fastest = FASTEST * min(self._usual_blocks, self._rate.prior_blocks)
        return self.pauses.voiced < fastest * self._units[-1]

    def _first_unsaid(self) -> int:
        pauses, units = self.pauses, self._units
        pausing = bool(pauses.found) and pauses.last_voice <= pauses.found[-1].start
        anchor, before, syllables_before = self._anchor, self._anchor_units, self._anchor_syllables
        if pausing and self._matched == len(pauses.found):
            anchor, before, syllables_before = self._before
        passed = (pauses.found[-1].voiced if pausing else pauses.voiced) - anchor
        syllables = self.syllables.count - syllables_before
        blocks = self._believed_blocks()
        said = before + max(0.0, passed) / blocks
        last = len(units) - 1
        share = UNSAID * self._rate.sd if self._syllabic else UNSAID_TONE
        tolerance = max(UNSAID_BLOCKS / blocks, share * (said - before))
        # The word being said; behind a pause rather one word too many than one too few.
        until = said - (tolerance if pausing else 0.0)
        estimated = next((index for index in range(last) if units[index + 1] > until), last)
        estimated = max(0, estimated - 1) if pausing else estimated
        reached = said if self._syllabic else until
        if pausing and (units[-2] + units[-1]) / 2 <= reached:
            estimated = last
        if not pausing or passed <= 0:
            return estimated
        best, chosen, skipped = STOP_FIT, estimated, 0.0
        for index in range(bisect_right(units, before) - 1, last):
            stop = 2 if index == last - 1 else self._stop(index)
            if not stop:
                continue
            length = units[index + 1] - before
            # Behind its end a text has nothing: what lasts longer than it should still ends there.
            ends = index == last - 1
            heard = min(passed, length * blocks) if ends else passed
            # After its end a voice always pauses: that a comma before had none says little.
            cost = max(0.0, skipped - SKIPPED[1]) if ends else skipped
            cost += self._rate.cost(length, heard, syllables)
            if cost < best:
                best, chosen = cost, index + 1
            skipped += SKIPPED[stop]
        # The end is believed only where the length says so too.
        return estimated if chosen == last or (chosen > estimated and best > SURE_STOP) else chosen

    @property
    def _syllabic(self) -> bool:
        return self.syllables.count >= max(1.0, FEWEST_HZ * BLOCK_S * self.pauses.voiced)

    def _believed_blocks(self) -> float:
        rate = self._rate
        if not self._syllabic:
            return min(rate.blocks, rate.prior_blocks)
        # The usual rate would draw that of a slow voice towards itself: only syllables count here.
        heard = self.pauses.voiced / self.syllables.count
        return min(heard, SLOWEST * rate.prior_blocks)

    def _count(self) -> None:
        for word in self._text.words[len(self._units) - 1 :]:
            self._units.append(self._units[-1] + word.units)

    def _stop(self, index: int) -> int:
        return self._text.words[index].stop if index < len(self._text.words) - 1 else 0

    # --- anchors ---

    def _match(self, pause: Pause, length: int, found: list[AlignedWord]) -> None:
        passed = pause.voiced - self._anchor
        if passed <= 0:
            return
        syllables = self.syllables.count - self._anchor_syllables
        best, chosen, skipped = FIT, -1, 0.0
        for index in range(bisect_right(self._units, self._anchor_units) - 1, len(self._units) - 1):
            stop = self._stop(index)
            if not stop:
                continue
            units = self._units[index + 1] - self._anchor_units
            cost = skipped + self._rate.cost(units, passed, syllables)
            cost += SHORT * max(0.0, 1 - length / STOP_BLOCKS[stop])
            if cost < best:
                best, chosen = cost, index
            skipped += SKIPPED[stop]
            if skipped > FIT:
                break
        if chosen >= 0:
            self._anchor_at(chosen, pause.voiced, found)

    def _anchor_at(self, index: int, voiced: float, found: list[AlignedWord]) -> None:
        units = self._units[index + 1]
        told, told_units = self._reported_voiced, self._units[self._reported]
        span = units - self._anchor_units
        pace = (voiced - self._anchor) / span
        # How far off the last told word turns out to be.
        off = told - self._anchor - (told_units - self._anchor_units) * pace
        while self._reported <= index:
            begin, end = self._units[self._reported], self._units[self._reported + 1]
            # Evenly between the anchors; where the words told already went too far, what is left
            # of the time is shared by the rest.
            ahead = max(0.0, off) / (units - told_units)
            bound_ms = self._bound_ms(
                begin - self._anchor_units, units - begin, off * (units - begin) / span
            )
            self._report_one(
                max(
                    voiced - (units - begin) * (pace - ahead), self._earliest(self._reported) or 0.0
                ),
                voiced - (units - end) * (pace - ahead),
                bound_ms,
                found,
            )
        self._rate.anchor(span, voiced - self._anchor)
        self._anchor_units, self._anchor = units, voiced
        self._anchor_syllables = self.syllables.count
        self._reported_voiced = max(self._reported_voiced, voiced)

    # --- words ---

    def _report(self, found: list[AlignedWord]) -> None:
        rate = self._rate
        while self._reported < len(self._text.words):
            earliest = self._earliest(self._reported)
            if earliest is None:
                return
            self._not_before(earliest)
            units = self._units[self._reported] - self._anchor_units
            length = (self._units[self._reported + 1] - self._anchor_units) * rate.blocks
            wait = HOLD_BLOCKS + HOLD * rate.sd * length
            if stop := self._stop(self._reported):
                wait = max(wait, PATIENCE_BLOCKS + PATIENCE[stop] * rate.sd * length)
            if self.pauses.voiced < self._anchor + length + wait:
                return
            bound_ms = self._bound_ms(units, None, rate.sd * units * rate.blocks)
            begin = max(self._reported_voiced, earliest)
            self._report_one(begin, self._place(length), bound_ms, found)

    def _earliest(self, index: int) -> float | None:
        if not self._entered:
            return 0.0
        start = self._text.words[index].start
        token = bisect_right(self._entered, start, key=lambda entry: entry[0])
        if token == len(self._entered):
            return None
        block = self._entered[token][1] * FRAME_BLOCKS - self._dropped() / BLOCK
        return self.pauses.voiced_at(min(max(block, 0.0), float(self.pauses.blocks)))

    def _not_before(self, voiced: float) -> None:
        units = self._units[self._reported]
        if voiced > self._anchor + (units - self._anchor_units) * self._rate.blocks:
            self._anchor, self._anchor_units = voiced, units
            self._anchor_syllables = bisect_right(self.syllables.peaks, voiced)

    def _place(self, length: float) -> float:
        even = self._anchor + length
        peaks = self.syllables.peaks
        # By the syllables heard in a block of this sound, so that only the unevenness counts.
        at = self._anchor_syllables + length * len(peaks) / self.pauses.voiced - 0.5
        index = math.floor(at)
        if index < max(1, self._anchor_syllables) or index + 1 >= len(peaks):
            return even
        heard = peaks[index] + (at - index) * (peaks[index + 1] - peaks[index])
        return even + HEARD * (heard - even)

    def _bound_ms(self, units: float, following: float | None, off: float) -> float:
        """Return the milliseconds within which 95 of 100 words lie."""
        if following is not None:
            # Like a random walk that is held at both ends.
            units = units * following / (units + following)
        walk = self._rate.blocks * WORDS_SD * math.sqrt(units + 1)
        return round(SURE * math.hypot(walk, off, LEAST_BLOCKS) * BLOCK_S * 1000, -1)

    def _report_one(
        self, begin: float, end: float, precision_ms: float, found: list[AlignedWord]
    ) -> None:
        pauses = self.pauses
        word = self._text.words[self._reported]
        begin = max(begin, self._reported_voiced)
        end = max(begin, end)
        start = max(self._reported_end, pauses.starts_at(begin))
        stop = min(max(start, pauses.ends_at(end)), float(pauses.blocks))
        start = min(start, stop)
        found.append(
            AlignedWord(
                start=round(start * BLOCK),
                end=round(stop * BLOCK),
                char_start=word.start,
                char_end=word.end,
                precision_ms=precision_ms,
            )
        )
        self._reported += 1
        self._reported_end, self._reported_voiced = stop, end
