"""What a latency log adds up to, in memory that does not grow with it (pure)."""

from __future__ import annotations

import math
import random
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from qwen3tts_speech.latency import Mark, UtteranceRecord

EXACT_VALUES = 16_384
"""Up to so many values a percentile is exact."""
GROWTH = 1.01
"""Ratio of one bucket's bounds beyond that: a percentile is then right to 0.5 %."""
SMALLEST_MS = 0.001
"""Everything nearer to zero falls into the middle bucket."""
SAMPLE_SIZE = 1024
"""Utterances kept to choose a typical one from."""

CHAIN = (
    Mark.TEXT_IN,
    Mark.FIRST_DELTA,
    Mark.REQUEST_SENT,
    Mark.REQUEST_RECEIVED,
    Mark.SEGMENT_READY,
    Mark.SLOT,
    Mark.PREFILL,
    Mark.FIRST_CODES,
    Mark.FIRST_PCM,
    Mark.RECEIVED,
    Mark.RESAMPLED,
    Mark.QUEUED,
    Mark.FIRST_FRAME_WIRE,
    Mark.FIRST_AUDIBLE_WIRE,
)
"""The marks that follow each other on the way to the first sound; a missing one is skipped."""


class Distribution:
    """Percentiles of many values: exact for few, in logarithmic buckets for many."""

    def __init__(self) -> None:
        self._values = array("d")
        self._buckets: Counter[int] = Counter()
        self._largest = -math.inf
        self._in_buckets = 0

    @property
    def count(self) -> int:
        """How many values there are."""
        return self._in_buckets + len(self._values)

    @property
    def largest(self) -> float:
        """The largest value; minus infinity where there is none."""
        return max(self._largest, max(self._values, default=-math.inf))

    def add(self, value: float) -> None:
        """Count one value."""
        self._values.append(value)
        if len(self._values) > EXACT_VALUES:
            self._put_into_buckets()

    def _put_into_buckets(self) -> None:
        values = np.frombuffer(self._values, np.float64)
        sizes = np.maximum(np.abs(values), SMALLEST_MS)
        # 0 around zero, positive above, negative below.
        numbers = np.ceil(np.log(sizes / SMALLEST_MS) / math.log(GROWTH)) * np.sign(values)
        for number, count in zip(*np.unique(numbers.astype(int), return_counts=True), strict=True):
            self._buckets[int(number)] += int(count)
        self._largest = max(self._largest, float(values.max()))
        self._in_buckets += len(values)
        self._values = array("d")

    def percentile(self, percent: float) -> float:
        """The smallest value that at least ``percent`` of all do not exceed; NaN where none is."""
        if not self.count:
            return math.nan
        rank = max(1, math.ceil(self.count * percent / 100))
        if not self._in_buckets:
            return sorted(self._values)[rank - 1]
        if self._values:
            self._put_into_buckets()
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= rank:
                return min(_middle(bucket), self.largest)
        raise AssertionError("the buckets hold fewer values than were counted")


def _middle(bucket: int) -> float:
    if bucket == 0:
        return 0.0
    size = SMALLEST_MS * GROWTH ** (abs(bucket) - 0.5)
    return math.copysign(size, bucket)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; times in milliseconds."""

    name: str
    count: int
    p50: float
    p95: float
    p99: float
    largest: float


FIRST_SOUND = "first delta → first sound"
HEADLINES = {
    FIRST_SOUND: (Mark.FIRST_DELTA, Mark.FIRST_AUDIBLE_WIRE),
    "asked → first sound": (Mark.TEXT_IN, Mark.FIRST_AUDIBLE_WIRE),
    "silence before the sound": (Mark.FIRST_FRAME_WIRE, Mark.FIRST_AUDIBLE_WIRE),
}
"""The times that matter most, by what they are called; both ends are frames on the wire."""


class Report:
    """Adds up utterances one after the other."""

    def __init__(self, *, seed: int = 0) -> None:
        """``seed`` chooses the sample that a typical utterance is taken from."""
        self.utterances = 0
        self.gapless = 0
        """Utterances that played and never ran dry."""
        self.played = 0
        """Utterances of which a frame reached the wire."""
        self.starvations = 0
        self.longest_gap_ms = 0.0
        self.interrupted = 0
        self.slowest: UtteranceRecord | None = None
        """The one that took longest to its first audible frame."""
        self.ends: Counter[str] = Counter()
        self._headlines = {name: Distribution() for name in HEADLINES}
        self._silence = Distribution()
        self._stages: dict[tuple[Mark, Mark], Distribution] = {}
        self._sample: list[UtteranceRecord] = []
        self._random = random.Random(seed)

    def add(self, record: UtteranceRecord) -> None:
        """Count one utterance."""
        self.utterances += 1
        self._count_end(record.end_reason)
        self.starvations += record.starvations
        self.longest_gap_ms = max(self.longest_gap_ms, record.longest_gap_ms)
        if Mark.FIRST_FRAME_WIRE in record.marks:
            self.played += 1
            self.gapless += not record.starvations
        if Mark.INTERRUPTED in record.marks:
            self.interrupted += 1
        if (silence := record.silence_ms) is not None:
            self._silence.add(silence)
        for name, (first, last) in HEADLINES.items():
            if (wait := record.between_ms(first, last)) is not None:
                self._headlines[name].add(wait)
        marks = record.marks
        for first, last in pairwise(mark for mark in CHAIN if mark in marks):
            values = self._stages.get((first, last))
            if values is None:
                values = self._stages[first, last] = Distribution()
            values.add((marks[last] - marks[first]) * 1000)
        self._keep(record)

    def _count_end(self, reason: str) -> None:
        # A damaged log may hold any number of reasons.
        if reason in self.ends or len(self.ends) < 32:
            self.ends[reason] += 1

    def _keep(self, record: UtteranceRecord) -> None:
        """Keep the slowest, and a fair sample (reservoir) of those that were heard."""
        first_sound = record.first_sound_ms
        if first_sound is None:
            return
        if self.slowest is None or first_sound > _first_sound(self.slowest):
            self.slowest = record
        if len(self._sample) < SAMPLE_SIZE:
            self._sample.append(record)
        else:
            place = self._random.randrange(self._headlines[FIRST_SOUND].count)
            if place < SAMPLE_SIZE:
                self._sample[place] = record

    @property
    def gapless_pct(self) -> float:
        """Share of the utterances played that never ran dry; NaN where none was played."""
        return 100 * self.gapless / self.played if self.played else math.nan

    def typical(self) -> UtteranceRecord | None:
        """An utterance whose first sound took about as long as the median."""
        middle = self._headlines[FIRST_SOUND].percentile(50)
        return min(
            self._sample, key=lambda record: abs(_first_sound(record) - middle), default=None
        )

    def headlines(self) -> list[Row]:
        """Times to the first sound, and to silence after an interruption."""
        rows = [_row(name, each) for name, each in self._headlines.items() if each.count]
        if self._silence.count:
            rows.append(_row("interrupted → silence", self._silence))
        return rows

    def stages(self) -> list[Row]:
        """The stages in the order of the line."""
        order = {mark: place for place, mark in enumerate(CHAIN)}
        found = sorted(self._stages, key=lambda pair: (order[pair[1]], order[pair[0]]))
        return [_row(f"{pair[0]} → {pair[1]}", self._stages[pair]) for pair in found]


def _first_sound(record: UtteranceRecord) -> float:
    first_sound = record.first_sound_ms
    return -math.inf if first_sound is None else first_sound


def _row(name: str, values: Distribution) -> Row:
    return Row(
        name,
        values.count,
        values.percentile(50),
        values.percentile(95),
        values.percentile(99),
        values.largest,
    )


def add_all(records: Iterable[UtteranceRecord]) -> Report:
    """The report on all of ``records``."""
    report = Report()
    for record in records:
        report.add(record)
    return report
