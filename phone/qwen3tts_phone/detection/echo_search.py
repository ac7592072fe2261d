"""Search for an echo's delay and filter, and bounds of its power.

The delay has the highest correlation of whitened spectra (generalised correlation with phase
transform, Knapp & Carter 1976), its energy summed over 16 ms because a room spreads an echo over
many taps. A caller only adds to the input, so the least ratio of heard to sent bounds the echo's
gain even while he speaks; the usual residual in each band bounds that of the next sound.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from qwen3tts_phone.detection.echo_canceller import (
    FIT_UNIT,
    LEAD_TAPS,
    TAPS,
    EchoCanceller,
    SampleTimeline,
)

Floats = NDArray[np.float32]

MIN_DELAY: Final = -240
MAX_DELAY: Final = 5600
"""Samples at 8 kHz between sending and hearing: -30 to 700 ms (with what a carrier has queued)."""
SPREAD_SAMPLES: Final = 128
"""Samples of the correlation whose energy is summed."""
WHITENING_FLOOR: Final = 0.1
"""Share of the mean magnitude added to each, so that bins without sound do not count."""
SOUND_PEAK: Final = 1e-3
"""Peak above which a block that was sent has sound."""
MIN_PEAK: Final = 5.0
"""Least peak of a delay that may be an echo's; the filter must agree..."""
SURE_PEAK: Final = 9.0
MOST_SURE_PEAK: Final = 15.0
"""...unless it is as high as this, of 0.4 s of sound and of 0.8 s."""
MIN_SEARCHED: Final = 1600
MAX_SEARCHED: Final = 6400
"""Samples that are searched: 0.2 s to 0.8 s..."""
MAX_SEARCHED_CHANGED: Final = 2400
"""...and at most where a known path fails: the newest of them."""
VALIDATION_SAMPLES: Final = 640
"""Samples (80 ms) that a new path is not fitted to, but tested on."""
ACCEPTED_RESIDUAL: Final = 0.75
"""Share of their power below which the path is accepted."""
MOVED_PATH_CORRELATION: Final = ((320, 0.85), (480, 0.82), (960, 0.75))
"""Samples (40 to 120 ms) and the correlation with its echo by which a moved path is found; a caller
beside the echo reaches 0.8, 0.72 and 0.64.
"""
MIN_SHIFT: Final = 4
"""Samples below which a path has not moved."""
_BLOCK: Final = 80


@dataclass(frozen=True, slots=True)
class FoundDelay:
    """Most probable delay of an echo."""

    delay: int
    """Index heard less index sent of the echo's beginning, approximately."""
    peak: float
    """Energy of the correlation there as a multiple of what unrelated sounds have: some 2 to 8 for
    another voice, 7 to 100 for an echo.
    """


@dataclass(frozen=True, slots=True)
class FoundPath:
    """Result of a search."""

    peak: float
    """Peak of the most probable delay."""
    canceller: EchoCanceller | None
    """None where there is no echo, or none by another path than the known one."""


def find_path(
    sent: SampleTimeline,
    heard: SampleTimeline,
    count: int,
    known: EchoCanceller | None = None,
) -> FoundPath:
    stop = heard.end
    start = stop - count
    piece = heard.get(start, stop)
    found = find_delay(piece, sent, start)
    if found is None or found.peak < MIN_PEAK:
        return FoundPath(found.peak if found is not None else 0.0, None)
    if known is not None and abs(found.delay - LEAD_TAPS - known.delay) < SPREAD_SAMPLES:
        return FoundPath(found.peak, None)
    canceller = EchoCanceller(sent, heard, found.delay)
    canceller.fit(min(start, stop - VALIDATION_SAMPLES - FIT_UNIT), stop - VALIDATION_SAMPLES)
    last = piece[-VALIDATION_SAMPLES:]
    rest = last - canceller.echo(stop - VALIDATION_SAMPLES, stop)
    if known is not None:
        last = last - known.echo(stop - VALIDATION_SAMPLES, stop)
    explains = float(rest @ rest) <= ACCEPTED_RESIDUAL * float(last @ last)
    sure = np.interp(count, (2 * MIN_SEARCHED, MAX_SEARCHED), (SURE_PEAK, MOST_SURE_PEAK))
    if not explains and (known is not None or found.peak < sure):
        return FoundPath(found.peak, None)
    canceller.fit(start, stop)
    return FoundPath(found.peak, canceller)


def find_shift(sent: SampleTimeline, heard: SampleTimeline, known: EchoCanceller) -> int | None:
    """Return by how many samples the known path has moved, in the newest 40 to 120 ms.

    None: no echo at any delay, or too faint beside other sounds.
    """
    stop = heard.end
    furthest = MAX_DELAY - known.delay
    longest = MOVED_PATH_CORRELATION[-1][0]
    line = sent.get(stop - longest - MAX_DELAY - TAPS + 1, stop - MIN_DELAY)
    size = fft_size(len(line))
    echoes = np.fft.rfft(line, size) * np.fft.rfft(known.taps, size)
    echo = np.fft.irfft(echoes, size)[TAPS - 1 : len(line)]
    spectrum = np.fft.rfft(echo, size)
    squares = np.concatenate((np.zeros(1), np.cumsum(np.square(echo), dtype=np.float64)))
    for count, enough in MOVED_PATH_CORRELATION:
        piece = heard.get(stop - count, stop)
        own = float(piece @ piece)
        first = longest - count
        powers = squares[first + count :] - squares[first:-count]
        if own <= 0 or powers.max() <= 0:
            continue
        products = np.fft.irfft(spectrum * np.conj(np.fft.rfft(piece, size)), size)
        alike = products[first : first + len(powers)] / np.sqrt(
            (powers + 1e-2 * powers.max()) * own
        )
        best = int(np.argmax(alike))
        if float(alike[best]) >= enough:
            return furthest - best
    return None


def find_delay(heard: Floats, sent: SampleTimeline, start: int) -> FoundDelay | None:
    """Return the delay at which ``heard`` (from index ``start``) is most like ``sent``.

    None where nothing was sent or heard.
    """
    line = sent.get(start - MAX_DELAY, start + len(heard) - MIN_DELAY)
    blocks = line[: len(line) // _BLOCK * _BLOCK].reshape(-1, _BLOCK)
    sounding = _BLOCK * int(np.count_nonzero(np.abs(blocks).max(axis=1) > SOUND_PEAK))
    size = fft_size(len(line))
    cross = np.fft.rfft(line, size) * np.conj(np.fft.rfft(heard, size))
    magnitude = np.abs(cross)
    mean = float(magnitude.mean())
    if mean <= 0 or not sounding:
        return None
    cross /= magnitude + WHITENING_FLOOR * mean
    squares = np.square(np.fft.irfft(cross, size), dtype=np.float64)
    total = float(squares.sum())
    sums = np.cumsum(squares[: MAX_DELAY - MIN_DELAY + 1])
    energy = sums[SPREAD_SAMPLES:] - sums[:-SPREAD_SAMPLES]
    best = int(np.argmax(energy))
    usual = total * SPREAD_SAMPLES / (len(heard) + sounding)
    return FoundDelay(MAX_DELAY - best - SPREAD_SAMPLES, float(energy[best]) / usual)


@lru_cache(maxsize=64)
def fft_size(least: int) -> int:
    sizes = (odd << (-(-least // odd) - 1).bit_length() for odd in (1, 3, 5, 9, 15, 25, 27))
    return min(sizes)


Array = NDArray[np.float64]

PIECE_SAMPLES: Final = 160
"""Samples at 8 kHz of one power, 20 ms or less."""
RATE_HZ: Final = 8000

MEMORY_S: Final = 0.2
"""Memory of the powers whose ratio is taken: single sounds pass an echo path very differently."""
RELEASE_DB_S: Final = 3.0
"""Decay of a bound while we speak: paths change."""
MIN_SENT_POWER: Final = 10 ** (-50 / 10)
"""Mean power sent, in the memory, from which the ratio is meaningful."""
MAX_GAIN: Final = 1.0
"""No echo has more power than what was sent."""

BAND_EDGES: Final = np.array([0, 20, 32, 48, 68, 92, 124])
"""First bins of 25 Hz of the bands of the residual, the last one up to 4 kHz. A path is learnt
where it was excited: a vowel says nothing about the next sound's hiss.
"""
SMEARING_SHARES: Final = 0.55 ** np.arange(8, -1, -1)
"""Shares of what was sent in the last 180 ms in the power of an echo."""
TAIL_DECAY: Final = 0.75
"""Fastest decay of the residual in 20 ms: a room goes on after the filter's last tap."""
LEAK_MEMORY_S: Final = 0.3
LAG_SAMPLES: Final = 800
"""Newest samples that are not yet part of what is usual: the caller may be in them."""
MAX_GROWTH: Final = 10 ** (4 / 10)
"""Multiple of the usual residual up to which it counts."""
PRIOR_POWER: Final = 10 ** (-55 / 10)
"""Mean power of a sound all of which came back: stands for a band that has not sounded yet."""
_WINDOW: Final = np.hanning(PIECE_SAMPLES + 2)[1:-1].astype(np.float32)


class EchoGainBound:
    """Upper bounds of the gains of ``count`` echo paths (pure)."""

    def __init__(self, count: int) -> None:
        self.gains: Array = np.full(count, MAX_GAIN)
        """Shape [count]."""
        self._heard = 0.0
        self._sent = np.zeros(count)

    def reset(self) -> None:
        self.gains[:] = MAX_GAIN
        self._sent[:] = 0.0

    def push(self, heard: float, sent: Array, count: int) -> None:
        """Take mean powers: heard, and returned by each path at a gain of 1, shape [count]."""
        kept = math.exp(-count / RATE_HZ / MEMORY_S)
        self._heard = kept * self._heard + (1 - kept) * heard
        self._sent *= kept
        self._sent += (1 - kept) * sent
        known = self._sent > MIN_SENT_POWER
        release = 10 ** (RELEASE_DB_S * count / RATE_HZ / 10)
        ratios = self._heard / self._sent[known]
        self.gains[known] = np.minimum(self.gains[known] * release, ratios)
        np.minimum(self.gains, MAX_GAIN, out=self.gains)

    def most(self, sent: Array) -> float:
        return float((self.gains * sent).max())


class EchoLeakEstimate:
    """Usual residual of an echo canceller relative to the sent bands (pure).

    ``sent`` is the excitation: the last `EXCITED` samples, up to those first back at the piece's
    end.
    """

    EXCITED: Final = PIECE_SAMPLES * len(SMEARING_SHARES)

    def __init__(self) -> None:
        self._left: Array = np.zeros(len(BAND_EDGES))
        self._sent: Array = np.zeros(len(BAND_EDGES))
        self._bound: Array = np.zeros(len(BAND_EDGES))
        self._held: deque[tuple[Array, Array, int]] = deque()
        self._lag = 0

    def push(self, rest: Floats, sent: Floats, callers: bool) -> tuple[float, float]:
        """Take a residual, shape [1 to PIECE_SAMPLES]; return its and a usual power.

        ``callers``: the caller speaks in it.
        """
        left, excited = bands(rest), self._excited(sent)
        usual = (self._left + PRIOR_POWER) / (self._sent + PRIOR_POWER) * excited
        self._bound = np.maximum(usual, TAIL_DECAY ** (len(rest) / PIECE_SAMPLES) * self._bound)
        power, bound = float(left.sum()), float(self._bound.sum())
        if callers:
            self._held.clear()
            self._lag = 0
        if power > MAX_GROWTH * bound:
            left = np.minimum(left, MAX_GROWTH * self._bound)
        self._held.append((left, excited, len(rest)))
        self._lag += len(rest)
        while self._lag > LAG_SAMPLES:
            oldest = self._held.popleft()
            self._lag -= oldest[2]
            self._take(*oldest)
        return power, bound

    def begin(self, heard: Floats, sent: Floats) -> None:
        self._take(bands(heard), self._excited(sent), len(heard))

    def scale(self, share: float) -> None:
        self._left *= share
        for left, _, _ in self._held:
            left *= share

    def _excited(self, sent: Floats) -> Array:
        powers: Array = SMEARING_SHARES @ bands(sent.reshape(-1, PIECE_SAMPLES))
        return powers

    def _take(self, left: Array, sent: Array, count: int) -> None:
        kept = math.exp(-count / RATE_HZ / LEAK_MEMORY_S)
        self._left = kept * self._left + (1 - kept) * left
        self._sent = kept * self._sent + (1 - kept) * sent


def bands(sound: Floats) -> Array:
    """Return powers in bands of pieces of up to 20 ms, shape [..., n] to [..., bands]."""
    count = sound.shape[-1]
    window = _WINDOW if count == PIECE_SAMPLES else np.hanning(count + 2)[1:-1].astype(np.float32)
    spectrum = np.fft.rfft(sound * window, 2 * PIECE_SAMPLES)
    powers = np.square(spectrum.real) + np.square(spectrum.imag)
    summed: Array = np.add.reduceat(powers, BAND_EDGES, axis=-1, dtype=np.float64)
    return summed / (PIECE_SAMPLES * float(window @ window))
