"""Mixing of voices on one clock, and the ringback tone."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.resample import Resampler

Samples = NDArray[np.int16]

DELAY_S: Final = 0.04
"""Delay of the mix: frames arrive one by one, after their end, from a process that may be busy."""
JOINS_S: Final = 0.011
"""A frame within this distance of the one before is joined to it: slots are known to half a frame,
and a step in the signal would be audible."""
BACK_S: Final = 0.5
AHEAD_S: Final = 5.0
"""Audio further ahead is dropped: more than the buffer of a far end that keeps the clock."""
KNEE: Final = 24_000.0
"""Limiter: linear up to here, compressed above."""


class _Segment(NamedTuple):
    start: int  # position, samples of the mix
    samples: Samples


class _Voice:
    def __init__(self, to_hz: int) -> None:
        self.to_hz = to_hz
        self.segments: deque[_Segment] = deque()
        self.resampler: Resampler | None = None
        self.end = 0

    def converted(self, samples: Samples, rate_hz: int, *, restart: bool) -> Samples:
        if self.resampler is None or self.resampler.from_hz != rate_hz or restart:
            self.resampler = Resampler(rate_hz, self.to_hz, aligned=False)
        return self.resampler.push(samples)


class Mixer:
    """Mixer of voices (pure); seconds of one clock.

    Frames are placed by their time, `DELAY_S` later, so that late ones are rare.
    """

    def __init__(self, rate_hz: int, ptime_ms: int, now: float) -> None:
        self.rate_hz = rate_hz
        self.late_s = 0.0
        self._count = rate_hz * ptime_ms // 1000
        self._ptime_s = ptime_ms / 1000
        self._origin = now
        self._ticks = 0
        self._voices: dict[str, _Voice] = {}

    @property
    def next_deadline(self) -> float:
        return self._origin + (self._ticks + 1) * self._ptime_s

    def put(self, voice: str, samples: Samples, rate_hz: int, at: float) -> None:
        if not len(samples):
            return
        known = self._voices.setdefault(voice, _Voice(self.rate_hz))
        start = round((at - self._origin + DELAY_S) * self.rate_hz)
        given = self._ticks * self._count
        if not given - BACK_S * self.rate_hz <= start <= given + AHEAD_S * self.rate_hz:
            self.late_s += len(samples) / rate_hz
            return
        joins = abs(start - known.end) <= JOINS_S * self.rate_hz
        converted = known.converted(samples, rate_hz, restart=not joins)
        if joins:
            start = known.end
        elif start < known.end:  # overlap in one voice: the earlier audio wins
            converted, start = converted[known.end - start :], known.end
        known.end = start + len(converted)
        late = given - start
        if late > 0:
            self.late_s += min(late, len(converted)) / self.rate_hz
            converted, start = converted[late:], given
        if len(converted):
            known.segments.append(_Segment(start, converted))

    def due(self, now: float) -> list[Samples]:
        frames = []
        while self.next_deadline <= now:
            frames.append(self._frame())
            self._ticks += 1
        return frames

    def _frame(self) -> Samples:
        start = self._ticks * self._count
        parts = [self._part(voice, start) for voice in self._voices.values()]
        heard = [part for part in parts if part is not None]
        if not heard:
            return np.zeros(self._count, np.int16)
        if len(heard) == 1:
            return heard[0].astype(np.int16)
        return limited(np.sum(heard, axis=0))

    def _part(self, voice: _Voice, start: int) -> NDArray[np.int32] | None:
        segments, end = voice.segments, start + self._count
        if not segments or segments[0].start >= end:
            return None
        part = np.zeros(self._count, np.int32)
        while segments and segments[0].start < end:
            segment = segments.popleft()
            room = end - segment.start
            fits = segment.samples[:room]
            part[segment.start - start : segment.start - start + len(fits)] = fits
            if len(segment.samples) > room:
                segments.appendleft(_Segment(end, segment.samples[room:]))
                break
        return part


def limited(mixed: NDArray[np.int32]) -> Samples:
    size = np.abs(mixed).astype(np.float64)
    if size.max(initial=0.0) <= KNEE:
        return mixed.astype(np.int16)
    above = 32_767.0 - KNEE
    compressed = KNEE + above * np.tanh((size - KNEE) / above)
    loud: Samples = np.rint(np.sign(mixed) * np.where(size > KNEE, compressed, size)).astype(
        np.int16
    )
    return loud


HZ: Final = 425.0
ON_S: Final = 1.0
PERIOD_S: Final = 5.0
"""ITU-T E.180 section 3.4: 400 to 450 Hz, 0.67 to 1.5 s of tone and 3 to 5 s of silence."""
PEAK: Final = 2000.0
RAMP_S: Final = 0.01


class RingbackTone:
    """Ringback tone (ITU-T E.180) from a ring's start (pure)."""

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._given = 0

    def next(self, count: int) -> NDArray[np.int16]:
        at = (np.arange(count) + self._given) / self._rate_hz
        self._given += count
        in_ring = at % PERIOD_S
        level = np.clip(np.minimum(in_ring, ON_S - in_ring) / RAMP_S, 0.0, 1.0)
        return np.rint(PEAK * level * np.sin(2 * np.pi * HZ * in_ring)).astype(np.int16)
