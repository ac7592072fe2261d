"""Mixing of a call's voices on one clock, and the ringback tone."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.resample import Resampler

Samples = NDArray[np.int16]

DELAY_S: Final = 0.04
"""A sample is heard so long after its time: frames are told of one at a time, when they are over,
and by a process that may be busy."""
JOINS_S: Final = 0.011
"""A frame that lies so near the end of the one before goes on from it: slots are told to half a
frame, and a step in the sound would be heard."""
BACK_S: Final = 0.5
"""Nothing older than this is put in; nobody would know what it belongs to."""
AHEAD_S: Final = 5.0
"""Nor what lies further ahead: so much may lie in the buffer of a far end that keeps the clock."""
KNEE: Final = 24_000.0
"""Up to here voices are added as they are; above, ever less, and never over the top."""


class _Segment(NamedTuple):
    start: int  # place, samples of the mix
    samples: Samples


class _Voice:
    """One of them, as pieces in order."""

    def __init__(self, to_hz: int) -> None:
        self.to_hz = to_hz
        self.pieces: deque[_Segment] = deque()
        self.resampler: Resampler | None = None
        self.end = 0

    def converted(self, samples: Samples, rate_hz: int, *, anew: bool) -> Samples:
        if self.resampler is None or self.resampler.from_hz != rate_hz or anew:
            self.resampler = Resampler(rate_hz, self.to_hz, aligned=False)
        return self.resampler.push(samples)


class Mixer:
    """Pure; times are seconds of one clock.

    Args:
        rate_hz: of the mix.
        ptime_ms: length of its frames.
        now: when it begins.
    """

    def __init__(self, rate_hz: int, ptime_ms: int, now: float) -> None:
        self.rate_hz = rate_hz
        self.late_s = 0.0
        """Sound that came after its place had been given out."""
        self._count = rate_hz * ptime_ms // 1000
        self._ptime_s = ptime_ms / 1000
        self._origin = now
        self._ticks = 0
        self._voices: dict[str, _Voice] = {}

    @property
    def next_deadline(self) -> float:
        """When the next frame is due."""
        return self._origin + (self._ticks + 1) * self._ptime_s

    def put(self, voice: str, samples: Samples, rate_hz: int, at: float) -> None:
        """Samples, shape [n], of one of the voices, whose first belongs to the time ``at``."""
        if not len(samples):
            return
        known = self._voices.setdefault(voice, _Voice(self.rate_hz))
        start = round((at - self._origin + DELAY_S) * self.rate_hz)
        given = self._ticks * self._count
        if not given - BACK_S * self.rate_hz <= start <= given + AHEAD_S * self.rate_hz:
            self.late_s += len(samples) / rate_hz
            return
        joins = abs(start - known.end) <= JOINS_S * self.rate_hz
        converted = known.converted(samples, rate_hz, anew=not joins)
        if joins:
            start = known.end
        elif start < known.end:  # two things at once in one voice: what is there goes on
            converted, start = converted[known.end - start :], known.end
        known.end = start + len(converted)
        late = given - start
        if late > 0:
            self.late_s += min(late, len(converted)) / self.rate_hz
            converted, start = converted[late:], given
        if len(converted):
            known.pieces.append(_Segment(start, converted))

    def due(self, now: float) -> list[Samples]:
        """The frames whose time has come, each of shape [rate_hz * ptime]."""
        frames = []
        while self.next_deadline <= now:
            frames.append(self._frame())
            self._ticks += 1
        return frames

    # --- inside

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
        """What one voice has there; None = it is silent."""
        pieces, end = voice.pieces, start + self._count
        if not pieces or pieces[0].start >= end:
            return None
        part = np.zeros(self._count, np.int32)
        while pieces and pieces[0].start < end:
            piece = pieces.popleft()
            room = end - piece.start
            fits = piece.samples[:room]
            part[piece.start - start : piece.start - start + len(fits)] = fits
            if len(piece.samples) > room:
                pieces.appendleft(_Segment(end, piece.samples[room:]))
                break
        return part


def limited(mixed: NDArray[np.int32]) -> Samples:
    """A sum of voices as int16, shape [n]: linear up to `KNEE`, and bent above it."""
    size = np.abs(mixed).astype(np.float64)
    if size.max(initial=0.0) <= KNEE:
        return mixed.astype(np.int16)
    above = 32_767.0 - KNEE
    bent = KNEE + above * np.tanh((size - KNEE) / above)
    loud: Samples = np.rint(np.sign(mixed) * np.where(size > KNEE, bent, size)).astype(np.int16)
    return loud


HZ: Final = 425.0
ON_S: Final = 1.0
PERIOD_S: Final = 5.0
"""ITU-T E.180 section 3.4: 400 to 450 Hz, 0.67 to 1.5 s of tone and 3 to 5 s of silence."""
PEAK: Final = 2000.0
"""About -27 dBm0: heard, and not loud in a headset."""
RAMP_S: Final = 0.01
"""It begins and ends without a click."""


class RingbackTone:
    """Samples as they are asked for, from the beginning of a ring (pure)."""

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._given = 0

    def next(self, count: int) -> NDArray[np.int16]:
        """The next samples, shape [count]."""
        at = (np.arange(count) + self._given) / self._rate_hz
        self._given += count
        in_ring = at % PERIOD_S
        level = np.clip(np.minimum(in_ring, ON_S - in_ring) / RAMP_S, 0.0, 1.0)
        return np.rint(PEAK * level * np.sin(2 * np.pi * HZ * in_ring)).astype(np.int16)
