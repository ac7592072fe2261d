"""The caller's sound, without holes and at one rate: for the turn that holds it, and for whoever
recognises it."""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.resample import Resampler
from qwen3tts_phone.call.events import HeardFrame

Samples = NDArray[np.int16]

PRE_ROLL_S: Final = 0.3
"""Of what came before the onset belongs to the turn: a detector hears soft consonants late."""
HOLE_S: Final = 0.03
"""So much missing media time is a hole that is filled with silence..."""
MOST_HOLE_S: Final = 2.0
"""...up to this."""
STANDING_HOLE_S: Final = 0.2
"""Where timestamps stand still the times of arrival tell, which waver more."""


class Continuous:
    """Frames in, the same sound without holes out (pure): far ends that send nothing in pauses
    leave some, and a recogniser must not hear two words as one."""

    def __init__(self) -> None:
        self._next: int | None = None
        self._clock_hz = 8000
        self._last_at = 0.0

    def hole_s(self, frame: HeardFrame) -> float:
        """Seconds of silence that belong before this frame."""
        hole = 0.0
        if self._next is not None and frame.clock_hz == self._clock_hz:
            length = round(frame.duration_s * frame.clock_hz)
            if frame.timestamp != self._next - length:  # it moves
                missing = (frame.timestamp - self._next) / frame.clock_hz
                hole = missing if missing >= HOLE_S else 0.0
            else:
                missing = frame.at - self._last_at - frame.duration_s
                hole = missing if missing >= STANDING_HOLE_S else 0.0
        self._next = frame.timestamp + round(frame.duration_s * frame.clock_hz)
        self._clock_hz = frame.clock_hz
        self._last_at = frame.at
        return min(hole, MOST_HOLE_S)


class AtRate:
    """Samples of any rate in, of one rate out (pure)."""

    def __init__(self, rate_hz: int) -> None:
        self.rate_hz = rate_hz
        self._resampler: Resampler | None = None

    def take(self, samples: Samples, rate_hz: int) -> Samples:
        """The same at the wanted rate; about as many as have come."""
        if rate_hz == self.rate_hz:
            self._resampler = None
            return samples
        if self._resampler is None or self._resampler.from_hz != rate_hz:
            self._resampler = Resampler(rate_hz, self.rate_hz)
        return self._resampler.push(samples)


class TurnSound:
    """Keeps the sound of the turn that is open, and somewhat of what came before (pure)."""

    def __init__(self, most_s: float) -> None:
        self.rate_hz = 8000
        """The first frame's; what comes at others is brought to it."""
        self._most_s = most_s + 2 * PRE_ROLL_S
        self._at_rate: AtRate | None = None
        self._kept: deque[tuple[Samples, float]] = deque()  # with when their last sample came
        self._count = 0
        self._from: float | None = None

    def push(self, samples: Samples, rate_hz: int, at: float) -> None:
        """Take what came, the last of it ``at``."""
        if self._at_rate is None:
            self.rate_hz = rate_hz
            self._at_rate = AtRate(rate_hz)
        taken = self._at_rate.take(samples, rate_hz)
        self._kept.append((taken, at))
        self._count += len(taken)
        longest = self._most_s if self._from is not None else 3 * PRE_ROLL_S
        while self._count > longest * self.rate_hz and len(self._kept) > 1:
            self._count -= len(self._kept.popleft()[0])

    def begin(self, at: float) -> None:
        """A turn has begun ``at``."""
        self._from = at - PRE_ROLL_S

    def so_far(self, longest_s: float | None = None) -> Samples:
        """The turn's sound up to now, its newest ``longest_s``."""
        start = self._from if self._from is not None else 0.0
        parts = []
        for samples, at in self._kept:
            if at > start:
                early = start - (at - len(samples) / self.rate_hz)
                skip = max(0, round(early * self.rate_hz))
                parts.append(samples[skip:] if skip else samples)
        whole = np.concatenate(parts) if parts else np.zeros(0, np.int16)
        return whole if longest_s is None else whole[-round(longest_s * self.rate_hz) :]

    def end(self) -> Samples:
        """The turn is over: its sound."""
        whole = self.so_far()
        self._from = None
        return whole
