"""What a lost packet would have sounded like (ITU-T G.711 Appendix I, without its delay).

The last pitch period goes on, more of them the longer it lasts, ever more quietly; what has no
pitch goes on as noise of the same spectrum. After 60 ms nothing is left but the far end's own
background. When packets come again, the made-up sound is faded into the real one.

The appendix holds back 3.75 ms of all sound, so that it may still change the end of what came. Here
nothing is held back: the step at the joint is taken out of what follows it instead.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.resample import Resampler
from qwen3tts_phone.comfort import Background, ComfortNoise, Silence, silence_of
from qwen3tts_phone.pitch import period_of_end

Samples = NDArray[np.int16]
Floats = NDArray[np.float64]

WINDOW_MS = 12.0
"""What is compared to find the pitch period; 10 to 15 are as good (PESQ within 0.02)."""
HISTORY_MS = 50.0
STEADY_MS = 10.0
"""So long the made-up sound keeps its level."""
FADE_MS = 60.0
"""When it is gone."""
QUIET_RMS = 50.0
"""-56 dBFS."""
LOUD_RMS = 330.0
"""-40 dBFS: no background is believed to be louder."""
MERGE_MS = 4.0
"""Of each 10 ms that were lost, in the fade back to the real sound."""
MERGE_MOST_MS = 5.0


class Concealer:
    """One stream's frames through it, and frames for the holes out of it (pure)."""

    def __init__(self, rate_hz: int, history: Samples | None = None) -> None:
        self.rate_hz = rate_hz
        self._size = self._count(HISTORY_MS)
        self._recent: deque[Samples] = deque((np.zeros(self._size, np.int16),))
        self._recent_size = self._size
        if history is not None:
            self._remember(history)
        self._background = Background()
        self._noise = ComfortNoise()
        self._hole: _Hole | None = None
        self._resting: Silence | None = None

    def at_rate(self, rate_hz: int) -> Concealer:
        """Return one at another rate that knows what was heard last."""
        resampler = Resampler(self.rate_hz, rate_hz, aligned=True)
        history = np.concatenate((resampler.push(self.history), resampler.flush()))
        concealer = Concealer(rate_hz, history)
        concealer._background, concealer._noise = self._background, self._noise
        return concealer

    @property
    def history(self) -> Samples:
        """What was heard last, shape [50 ms]."""
        return np.concatenate(self._recent)[-self._size :]

    @property
    def quiet_rms(self) -> float:
        """Up to this level nobody speaks, as far as is known."""
        return min(LOUD_RMS, max(QUIET_RMS, 2 * self._background.rms))

    @property
    def lost_s(self) -> float:
        """How much has been made up since the last real frame."""
        return 0.0 if self._hole is None else self._hole.done / self.rate_hz

    def hear(self, samples: Samples) -> Samples:
        """Take a frame that came, shape [n]; return it as it is to be heard."""
        self._background.hear(samples)
        hole, self._hole, self._resting = self._hole, None, None
        if hole is not None:
            samples = self._merge(hole, samples)
        self._remember(samples)
        return samples

    def rest(self, silence: Silence) -> None:
        """The far end is silent and has said how: until a frame comes, holes sound like this."""
        self._resting = silence
        self._noise.sound(silence)

    def fill(self, count: int) -> Samples:
        """Return the next ``count`` samples of a hole."""
        if self._hole is None:
            self._noise.sound(self._resting or self._background.silence)
            self._hole = _Hole(self.history.astype(np.float64), self.rate_hz)
            if self._resting is not None:
                self._hole.done = self._count(FADE_MS)
        made = _samples(self._made(self._hole, count))
        self._remember(made)
        return made

    def _made(self, hole: _Hole, count: int) -> Floats:
        gains = hole.gains(count)
        made: Floats = hole.next(count) * gains + self._noise.make(count) * (1 - gains)
        return made

    def _merge(self, hole: _Hole, samples: Samples) -> Samples:
        """Fade from what would have been made up next to what came."""
        lost_ms = 1000 * hole.done / self.rate_hz
        merge_ms = min(
            MERGE_MOST_MS, 1000 * hole.period / self.rate_hz / 4 + MERGE_MS * lost_ms / 10
        )
        count = min(len(samples), self._count(merge_ms))
        rise = (np.arange(count) + 0.5) / max(1, count)
        merged = samples.copy()
        merged[:count] = _samples(samples[:count] * rise + self._made(hole, count) * (1 - rise))
        return merged

    def _remember(self, samples: Samples) -> None:
        recent = self._recent
        recent.append(samples)
        self._recent_size += len(samples)
        while self._recent_size - len(recent[0]) >= self._size:
            self._recent_size -= len(recent.popleft())

    def _count(self, ms: float) -> int:
        return round(ms * self.rate_hz / 1000)


class _Hole:
    """The continuation of one history."""

    def __init__(self, history: Floats, rate_hz: int) -> None:
        self._history = history
        self._rate_hz = rate_hz
        window = round(WINDOW_MS * rate_hz / 1000)
        self.period, voiced = period_of_end(history, rate_hz, window)
        self.done = 0
        self._voiced = min(1.0, max(0.0, (voiced - 0.2) / 0.3))
        self._breath: ComfortNoise | None = None
        if self._voiced < 1:
            self._breath = ComfortNoise(silence_of(_samples(history[-window:])))
        self._periods = 0
        self._cycle = self._phase = history[:0]
        self._phase_at = 0
        self._use(1)
        # The natural neighbour of the cycle's first sample is the one before it.
        step = history[-1] - history[-1 - self.period]
        self._step = step * self._voiced
        self._step_count = max(1, self.period // 4)

    def gains(self, count: int) -> Floats:
        """The level of the next samples, 1 to 0; shape [count]."""
        ms = 1000 * (self.done + np.arange(count)) / self._rate_hz
        levels: Floats = np.clip((FADE_MS - ms) / (FADE_MS - STEADY_MS), 0.0, 1.0)
        return levels

    def next(self, count: int) -> Floats:
        """The next samples, at the level of the last ones that came; shape [count]."""
        # Appendix I: after 10 ms two periods take turns, after 20 ms three, or it would buzz.
        lost_ms = 1000 * self.done / self._rate_hz
        self._use(1 if lost_ms < 10 else 2 if lost_ms < 20 else 3)
        at = (self._phase_at + np.arange(count)) % len(self._cycle)
        self._phase_at = (self._phase_at + count) % len(self._cycle)
        made = self._cycle[at] * self._voiced
        if self._breath is not None:
            made = made + self._breath.make(count) * np.sqrt(1 - self._voiced**2)
        if self.done < self._step_count:
            left = self._step_count - self.done
            share = np.clip((left - np.arange(count)) / self._step_count, 0.0, 1.0)
            made = made + self._step * share
        self.done += count
        result: Floats = made
        return result

    def _use(self, periods: int) -> None:
        """Make a cycle of the last periods, whose end goes over into its beginning."""
        if periods == self._periods:
            return
        length, overlap = periods * self.period, max(1, self.period // 4)
        cycle = self._history[-length:].copy()
        before = self._history[-length - overlap : -length]
        rise = (np.arange(len(before)) + 0.5) / max(1, len(before))
        if len(before):
            cycle[-len(before) :] = cycle[-len(before) :] * (1 - rise) + before * rise
        if self._periods:  # go on at the same place within the period
            phase = self._phase_at % self.period
            self._phase_at = length - self.period + phase if phase else 0
        self._cycle, self._periods = cycle, periods


def _samples(signal: Floats) -> Samples:
    clipped: Samples = np.clip(np.rint(signal), -32768, 32767).astype(np.int16)
    return clipped
