"""Streaming time scaling that keeps the pitch: pitch periods are removed or repeated.

Source: W. Verhelst, M. Roelands, "An overlap-add technique based on waveform similarity (WSOLA)",
ICASSP 1993. The input is copied; where the output is ahead of it or behind it by half a pitch
period or more, it goes on one period later or earlier, at the most similar place, faded over.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.pitch import WINDOW_MS, best_lag, bounds

Floats = NDArray[np.float32]

FADE_MS = 5.0
"""Longest fade from one place to another."""
FAST_MS = 6.25
"""Input by which a faster output is behind before it skips a period;"""
SLOW_MS = 2.5
"""by which a slower output is ahead before it repeats one. It then looks ahead less."""
PATIENCE_MS = 5.0
"""Longest wait for a place where the signal is periodic."""
PERIODIC = 0.6
"""Normalised correlation from which it is."""
SILENT = 1e-7
"""Mean square below which any place is as good as another (-70 dBFS)."""


class TimeScale:
    """Changes the rate of speech and keeps its pitch.

    The output depends on the samples alone, not on how they are cut into pieces. An output sample
    needs at most 20 ms of input beyond its own place; at speed 1 the samples pass unchanged.

    Args:
        speed: input samples for each output sample.
        rate_hz: sample rate.
    """

    def __init__(self, speed: float, rate_hz: int) -> None:
        if not (math.isfinite(speed) and speed > 0):
            raise ValueError(f"speed={speed} is not above 0")
        self.speed = speed
        self.given = 0
        """Output samples so far."""
        self._low, self._high = bounds(rate_hz)
        self._window = round(WINDOW_MS * rate_hz / 1000)
        self._fade = round(FADE_MS * rate_hz / 1000)
        start_ms = FAST_MS if speed > 1 else SLOW_MS
        self._start = round(start_ms * rate_hz / 1000)
        self._patience = self._start + round(PATIENCE_MS * rate_hz / 1000)
        self._held = np.zeros(0, np.float32)
        """Input from ``_base`` on: not yet read, or needed to go back."""
        self._base = 0
        self._read = 0
        """Next input sample to copy."""
        self._look_at = 0 if speed == 1.0 else self._until_next(0.0)
        """Input sample up to which it copies; then a jump is due."""

    def place(self, sample: int) -> int:
        """Return the output sample at an input sample, among those given."""
        return min(round(sample / self.speed), self.given)

    def push(self, samples: Floats) -> Floats:
        """Take input [n]; return the output that is ready."""
        if self.speed == 1.0:
            self.given += len(samples)
            return samples
        self._held = np.concatenate((self._held, samples))
        return self._run(ended=False)

    def end(self) -> Floats:
        return self._run(ended=True) if self.speed != 1.0 else np.zeros(0, np.float32)

    def _run(self, *, ended: bool) -> Floats:
        made: list[Floats] = []
        while True:
            here = self._read - self._base
            left = len(self._held) - here
            if self._read >= self._look_at:
                if left < self._needed():
                    if not ended:
                        break
                    self._look_at = self._read + left
                else:
                    faded = self._jump(here, self._off())
                    self._put(made, faded)
                    if len(faded):
                        self._look_at = self._read + self._until_next(self._off())
                    continue
            count = min(left, self._look_at - self._read)
            if count <= 0:
                break
            self._put(made, self._held[here : here + count])
            self._read += count
        self._forget()
        return np.concatenate(made) if made else np.zeros(0, np.float32)

    def _put(self, made: list[Floats], samples: Floats) -> None:
        made.append(samples)
        self.given += len(samples)

    def _off(self) -> float:
        """Return by how many samples the input is behind (at a low speed: ahead)."""
        behind = self.given * self.speed - self._read
        return behind if self.speed > 1 else -behind

    def _needed(self) -> int:
        return (self._high if self.speed > 1 else 0) + self._window

    def _until_next(self, off: float) -> int:
        """Return how many samples to copy until a jump is due."""
        return max(0, math.ceil((self._start - off) / abs(self.speed - 1)))

    def _jump(self, here: int, off: float) -> Floats:
        """Fade to a place one period later or earlier, or put it off: empty."""
        held, window = self._held, self._window
        late = off >= self._patience
        # Further off, short jumps would not suffice.
        low = min(max(self._low, round(off) * 2 // 3), self._high) if late else self._low
        if self.speed > 1:
            signal = held[here : here + self._high + window].astype(np.float64)
        else:
            # Backwards in time, the earlier place is a later one.
            signal = held[max(0, here - self._high) : here + window][::-1].astype(np.float64)
        high = len(signal) - window
        if high < low:
            self._look_at = self._read + self._fade
            return held[:0]
        lag, likeness = min(max(round(off), low), high), 1.0
        if float(np.mean(np.square(signal))) > SILENT:
            lag, likeness = best_lag(signal, window, low, high)
        if likeness < PERIODIC and not late:
            self._look_at = self._read + self._fade // 2
            return held[:0]
        to = here + (lag if self.speed > 1 else -lag)
        count = min(self._fade, lag)
        rise = ((np.arange(count) + 0.5) / count).astype(np.float32)
        faded: Floats = held[here : here + count] * (1 - rise) + held[to : to + count] * rise
        self._read = self._base + to + count
        return faded

    def _forget(self) -> None:
        drop = max(0, self._read - self._base - self._high)
        self._held = self._held[drop:].copy()
        self._base += drop
