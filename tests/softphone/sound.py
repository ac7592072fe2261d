"""Is what a browser heard what the engine spoke, though its jitter buffer stretches it?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import resample_poly

from tests.audio import lag_of, quality

Samples = NDArray[np.int16]
RATE_HZ = 8000
SEGMENT = 1600
"""200 ms: long enough to be unlike others, short enough to have one place in stretched sound."""
ROOM = 3200
"""A segment may lie 0.4 s from where the whole sentence lies: a jitter buffer inserts and removes
pieces of it, more so on a machine that is busy."""
QUIET = 300
"""RMS below which a segment is a pause."""
ALIKE = 0.85
"""Least normalized correlation of a segment with what was heard; another part of the same sentence
has below 0.6."""


@dataclass(frozen=True)
class Likeness:
    """A sentence beside what was heard of it."""

    segments: int
    """Pieces of 200 ms with speech in the sentence."""
    found: int
    """Of these, those that were heard at about their place."""
    spread_ms: float
    """By how much the places of the found pieces are uneven: what was inserted and removed."""
    pesq: float
    """Narrow band (ITU-T P.862), 1 to 4.5, with each piece taken from where it was heard."""

    @property
    def whole(self) -> bool:
        """Whether the sentence was heard, and as good as on a telephone."""
        return self.segments > 10 and self.found >= 0.9 * self.segments and self.pesq > 3.0


def at_8k(samples: Samples, rate_hz: int) -> Samples:
    """By a filter that is none of ours."""
    if rate_hz == RATE_HZ:
        return samples
    down = resample_poly(samples.astype(float), 1, rate_hz // RATE_HZ, window=("kaiser", 8.0))
    clipped: Samples = np.clip(np.rint(down), -32768, 32767).astype(np.int16)
    return clipped


def likeness(sentence: Samples, sentence_hz: int, heard: Samples, heard_hz: int) -> Likeness:
    """Compare what the engine spoke with what the browser's loudspeaker was given, shapes [n]."""
    reference = at_8k(sentence, sentence_hz)
    around = np.zeros(len(reference) + ROOM, np.int16)
    whole = np.concatenate([around, at_8k(heard, heard_hz), around])
    begin = lag_of(reference, whole)
    places: list[int] = []
    stitched = np.zeros(len(reference), np.int16)
    segments = 0
    for at in range(0, len(reference), SEGMENT):
        piece = reference[at : at + SEGMENT].astype(float)
        place = begin + at + (places[-1] if places else 0)
        if len(piece) == SEGMENT and np.sqrt((piece**2).mean()) >= QUIET:
            segments += 1
            low = max(0, begin + at - ROOM)
            at_low, alike = _best(piece, whole[low : begin + at + SEGMENT + ROOM].astype(float))
            if alike >= ALIKE:
                place = low + at_low
                places.append(place - begin - at)
        came = whole[place : place + len(piece)]
        stitched[at : at + len(came)] = came
    spread = (max(places) - min(places)) * 1000 / RATE_HZ if places else 0.0
    return Likeness(segments, len(places), spread, quality(reference, stitched))


def _best(piece: NDArray[np.float64], within: NDArray[np.float64]) -> tuple[int, float]:
    """Where the piece lies, and its normalized correlation there."""
    windows = np.lib.stride_tricks.sliding_window_view(within, len(piece))
    norms = np.sqrt((windows**2).sum(axis=1)) * np.sqrt((piece**2).sum())
    alike = windows @ piece / np.maximum(norms, 1.0)
    place = int(np.argmax(alike))
    return place, float(alike[place])
