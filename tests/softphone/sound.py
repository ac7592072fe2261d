"""Is what a browser heard what the engine spoke, though its jitter buffer stretches it?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.signal import correlate, resample_poly

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


class Heard(Protocol):
    """What came out at the other end."""

    @property
    def samples(self) -> Samples:
        """Shape [n]."""

    @property
    def rate_hz(self) -> int:
        """Their rate."""


@dataclass(frozen=True)
class Sound:
    """Samples of a rate."""

    samples: Samples
    rate_hz: int


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
    def known(self) -> bool:
        """Whether it was this sentence, harmed or not."""
        return self.segments > 5 and self.found > self.segments / 3

    @property
    def whole(self) -> bool:
        """Whether the sentence was heard, and as good as on a telephone."""
        return self.segments > 10 and self.found >= 0.9 * self.segments and self.pesq > 3.0


class Wanted:
    """Sentences of which each has to come through, known for itself and for no other.

    A third of its pieces is enough for that: another sentence has none. A machine that is busy
    misses slots and so harms pieces, which benchmarks measure and tests forgive.
    """

    def __init__(self) -> None:
        self.best: dict[str, Likeness] = {}
        """Of each, by a name, how it was heard best."""

    def listen(self, name: str, takes: list[Samples], hz: int, heard: Heard) -> None:
        """Listen for one of the ``takes``, as the sentence was spoken each time."""
        for take in takes:
            like = likeness(take, hz, heard.samples, heard.rate_hz)
            self.best[name] = max(like, self.best.get(name, like), key=lambda each: each.found)

    @property
    def missing(self) -> dict[str, Likeness]:
        """Those that were not heard."""
        return {name: like for name, like in self.best.items() if not like.known}


def at_8k(samples: Samples, rate_hz: int) -> Samples:
    """By a filter of its own."""
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
    product = correlate(within, piece, mode="valid")
    squares = np.concatenate([[0.0], np.cumsum(within**2)])
    power = squares[len(piece) :] - squares[: -len(piece)]
    norms = np.sqrt(np.maximum(power, 0.0) * (piece**2).sum())
    alike = product / np.maximum(norms, 1.0)
    place = int(np.argmax(alike))
    return place, float(alike[place])
