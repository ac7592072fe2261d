"""The sound of one call's turns, kept while they last (pure)."""

from __future__ import annotations

from collections import deque

import numpy as np

from qwen3tts_phone.detection.recogniser import Samples

PAST_S = 2.0
"""Sound before a turn that is kept: it is known late that somebody speaks."""
PRE_ROLL_S = 0.3
"""Sound before the first voiced sample that belongs to the turn: soft consonants are not voiced."""
TAIL_S = 0.3
"""Sound after the last voiced sample that belongs to the turn."""
LONGEST_S = 300.0
"""Sound of one turn that is kept; of a longer one the beginning is lost."""


class TurnBuffer:
    """Takes everything that is heard, and gives out what belongs to a turn.

    >>> audio = TurnAudio(16_000)
    >>> audio.push(samples, at=7.02); audio.begin(at=6.9); audio.push(more, at=7.04)
    >>> audio.samples()
    """

    def __init__(self, rate_hz: int, *, longest_s: float = LONGEST_S) -> None:
        """``rate_hz``: of all samples; ``longest_s``: how much of one turn is kept."""
        if rate_hz <= 0 or longest_s <= 0:
            raise ValueError(f"rate_hz={rate_hz} and longest_s={longest_s} must be above 0")
        self.rate_hz = rate_hz
        self.lost = 0
        """Samples of the present turn that were given up for want of room."""
        self._longest = round(longest_s * rate_hz)
        self._total = 0
        self._floor = 0  # no turn takes a sample before this one: it was the last one's
        self._past: deque[tuple[int, Samples, float]] = deque()  # (index of the first, them, at)
        self._past_samples = 0
        self._turn: deque[Samples] | None = None
        self._turn_samples = 0

    @property
    def in_turn(self) -> bool:
        """Whether a turn has begun and not ended."""
        return self._turn is not None

    @property
    def duration_s(self) -> float:
        """How much of the present turn is here."""
        return self._turn_samples / self.rate_hz

    def push(self, samples: Samples, at: float) -> None:
        """Take samples [n] the last of which was heard at ``at``; they are copied."""
        kept = np.array(samples, dtype=np.int16).reshape(-1)
        if not len(kept):
            return
        self._past.append((self._total, kept, at))
        self._past_samples += len(kept)
        self._total += len(kept)
        while self._past_samples - len(self._past[0][1]) >= PAST_S * self.rate_hz:
            self._past_samples -= len(self._past.popleft()[1])
        if self._turn is not None:
            self._add(kept)

    def begin(self, at: float) -> None:
        """A turn begins, its first voiced sample at ``at``; one that goes on is given up."""
        self._turn, self._turn_samples, self.lost = deque(), 0, 0
        first = max(self._floor, self._index(at - PRE_ROLL_S))
        for start, samples, _ in self._past:
            if start + len(samples) > first:
                self._add(samples[max(0, first - start) :])

    def samples(self, until: float | None = None) -> Samples:
        """What there is of the turn, shape [n]; ``until``: no more than a tail after that time."""
        if not self._turn:
            return np.zeros(0, np.int16)
        whole = np.concatenate(list(self._turn))
        self._turn = deque([whole])
        if until is None:
            return whole
        after = self._total - self._index(until + TAIL_S)
        return whole[: max(0, len(whole) - after)]

    def before(self, at: float) -> int:
        """How many of the turn's samples there are up to this time."""
        return max(0, self._turn_samples - (self._total - self._index(at)))

    def cut(self, most_s: float) -> Samples:
        """Take away a piece of at most so many seconds from the turn's beginning, shape [n].

        It is cut where the last third of it is quietest.
        """
        whole = self.samples()
        most, quiet = round(most_s * self.rate_hz), max(1, self.rate_hz // 10)
        if len(whole) <= most:
            place = len(whole)
        else:
            third = most // 3 // quiet * quiet
            loud = whole[most - third : most].reshape(-1, quiet).astype(np.float64)
            latest = len(loud) - 1 - int((loud**2).sum(axis=1)[::-1].argmin())
            place = most - third + quiet * latest + quiet // 2
        self._turn = deque([whole[place:]])
        self._turn_samples = len(whole) - place
        return whole[:place]

    def end(self, at: float | None = None) -> None:
        """The turn is over; what was heard up to ``at`` belongs to no later one."""
        if at is not None:
            self._floor = max(self._floor, self._index(at))
        self._turn, self._turn_samples = None, 0

    def _add(self, samples: Samples) -> None:
        assert self._turn is not None
        self._turn.append(samples)
        self._turn_samples += len(samples)
        while self._turn_samples > self._longest:
            first = self._turn[0]
            over = min(len(first), self._turn_samples - self._longest)
            if over == len(first):
                self._turn.popleft()
            else:
                self._turn[0] = first[over:]
            self._turn_samples -= over
            self.lost += over

    def _index(self, at: float) -> int:
        """The number of the sample heard at this time, among those that are kept."""
        for start, samples, end in reversed(self._past):
            begin = end - len(samples) / self.rate_hz
            if at >= end:
                return start + len(samples)
            if at >= begin:
                return start + round((at - begin) * self.rate_hz)
        return self._past[0][0] if self._past else self._total
