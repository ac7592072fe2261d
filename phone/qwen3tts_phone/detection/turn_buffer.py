"""Audio of a call's turns (pure)."""

from __future__ import annotations

from collections import deque

import numpy as np

from qwen3tts_phone.detection.recogniser import Samples

PAST_S = 2.0
"""Audio before a turn that is kept: speech is detected late."""
PRE_ROLL_S = 0.3
"""Audio before the first voiced sample that belongs to the turn: soft consonants are not voiced."""
TAIL_S = 0.3
"""Audio after the last voiced sample that belongs to the turn."""
LONGEST_S = 300.0
"""Audio of one turn that is kept; of a longer one the beginning is lost."""


class TurnBuffer:
    """Buffer of all audio that returns what belongs to a turn.

    >>> buffer = TurnBuffer(16_000)
    >>> buffer.push(samples, at=7.02); buffer.begin(at=6.9); buffer.push(more, at=7.04)
    >>> buffer.samples()
    """

    def __init__(self, rate_hz: int, *, longest_s: float = LONGEST_S) -> None:
        if rate_hz <= 0 or longest_s <= 0:
            raise ValueError(f"rate_hz={rate_hz} and longest_s={longest_s} must be above 0")
        self.rate_hz = rate_hz
        self.lost = 0
        """Samples of the present turn that were dropped for lack of room."""
        self._longest = round(longest_s * rate_hz)
        self._total = 0
        self._floor = 0  # no turn takes a sample before this one: it was the last one's
        self._past: deque[tuple[int, Samples, float]] = deque()  # (index of the first, them, at)
        self._past_samples = 0
        self._turn: deque[Samples] | None = None
        self._turn_samples = 0

    @property
    def in_turn(self) -> bool:
        return self._turn is not None

    @property
    def duration_s(self) -> float:
        return self._turn_samples / self.rate_hz

    def push(self, samples: Samples, at: float) -> None:
        """Take samples [n], the last of which arrived ``at``; copied."""
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
        self._turn, self._turn_samples, self.lost = deque(), 0, 0
        first = max(self._floor, self._index(at - PRE_ROLL_S))
        for start, samples, _ in self._past:
            if start + len(samples) > first:
                self._add(samples[max(0, first - start) :])

    def samples(self, until: float | None = None) -> Samples:
        """Return the turn so far, shape [n]; ``until``: only that and a tail."""
        if not self._turn:
            return np.zeros(0, np.int16)
        whole = np.concatenate(list(self._turn))
        self._turn = deque([whole])
        if until is None:
            return whole
        after = self._total - self._index(until + TAIL_S)
        return whole[: max(0, len(whole) - after)]

    def before(self, at: float) -> int:
        return max(0, self._turn_samples - (self._total - self._index(at)))

    def cut(self, most_s: float) -> Samples:
        """Remove and return at most ``most_s`` from the turn's beginning, shape [n].

        Cut where the last third of that is quietest.
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
        for start, samples, end in reversed(self._past):
            begin = end - len(samples) / self.rate_hz
            if at >= end:
                return start + len(samples)
            if at >= begin:
                return start + round((at - begin) * self.rate_hz)
        return self._past[0][0] if self._past else self._total
