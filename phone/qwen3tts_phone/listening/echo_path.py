"""Where and how what we have sent comes back: delay by correlation, filter by least squares.

Both look at a short piece of what is heard, so they know at once when the path has changed; what
the caller says at the same time makes both fail, which is how speech over an echo is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from qwen3tts_phone.listening.sample_line import SampleLine

Floats = NDArray[np.float32]

TAPS: Final = 96
"""12 ms: a hybrid's response is 6 to 8 ms long."""
LEAD: Final = 24
"""Of them before the delay that was found."""
LEAST_DELAY: Final = -240
MOST_DELAY: Final = 5600
"""Samples at 8 kHz between sending and hearing: -30 to 700 ms (what a carrier has queued is in it).
"""


@dataclass(frozen=True, slots=True)
class Path:
    """One echo's."""

    delay: int
    """Index of what is heard less index of what was sent, of the first tap."""
    taps: Floats
    """Newest first, shape [TAPS]."""
    explained_db: float
    """How much of the piece it was found in is left, dB (negative)."""

    @property
    def gain(self) -> float:
        """How much of the power that was sent comes back, about."""
        return float(self.taps @ self.taps)

    def echo(self, sent: SampleLine, start: int, stop: int) -> Floats:
        """What comes back at the heard indices from ``start`` to before ``stop``."""
        line = sent.get(start - self.delay - TAPS + 1, stop - self.delay)
        echo: Floats = np.convolve(line, self.taps, mode="valid")
        return echo


def find_delay(heard: Floats, sent: SampleLine, start: int) -> tuple[int, float]:
    """The delay at which what is heard (from index ``start``) is most like what was sent.

    Returns it with the likeness: the correlation coefficient, 0 to 1.
    """
    length = len(heard)
    line = sent.get(start - MOST_DELAY, start + length - LEAST_DELAY)
    heard, line = _flatter(heard), _flatter(line)
    own = float(heard @ heard)
    squares = np.concatenate((np.zeros(1), np.cumsum(np.square(line), dtype=np.float64)))
    width = len(heard)
    powers = squares[width:] - squares[:-width]
    loudest = float(powers.max(initial=0.0))
    if own <= 0 or loudest <= 0:
        return 0, 0.0
    size = 1 << (len(line) - 1).bit_length()
    spectrum = np.fft.rfft(line, size) * np.conj(np.fft.rfft(heard, size))
    products = np.fft.irfft(spectrum, size)[: len(powers)]
    likeness = np.abs(products) / np.sqrt((powers + 1e-3 * loudest) * own)
    best = int(np.argmax(likeness))
    return MOST_DELAY - best, float(likeness[best])


def fit(heard: Floats, sent: SampleLine, start: int, delay: int) -> Path | None:
    """The filter that makes most of ``heard`` (from index ``start``) out of what was sent.

    None where nothing was sent then.
    """
    first = delay - LEAD
    before = sent.get(start - first - TAPS + 1, start - first + len(heard))
    line, count = before.astype(np.float64), len(heard)
    own = float(heard @ heard)
    products = _products(line, count)
    power = float(np.trace(products)) / TAPS
    if power <= 1e-9 * count or own <= 0:
        return None
    products[np.diag_indices(TAPS)] += 1e-4 * power
    likeness = np.correlate(line, heard.astype(np.float64), mode="valid")[::-1]
    taps = np.linalg.solve(products, likeness)
    left = max(0.0, 1 - float(taps @ likeness) / own)
    return Path(first, taps.astype(np.float32), 10 * float(np.log10(left + 1e-4)))


def _flatter(sound: Floats) -> Floats:
    """With less of what is low: flatter spectra correlate more sharply. One sample shorter."""
    flat: Floats = sound[1:] - np.float32(0.9) * sound[:-1]
    return flat


def _products(line: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Shape [TAPS, TAPS]: of ``line`` delayed by i and by j samples, the sums of products over
    ``count`` samples. The first row is summed; each other entry follows from the one before it on
    its diagonal, which looks one sample further back."""
    newest = line[TAPS - 1 :]
    first = np.correlate(line, newest, mode="valid")[::-1]
    early = line[TAPS - 2 :: -1]  # what comes in when looking back by one, newest first
    late = line[count + TAPS - 2 : count - 1 : -1]  # what goes out
    steps = np.empty((TAPS, TAPS))
    steps[0] = first
    steps[1:, 0] = first[1:]
    steps[1:, 1:] = np.outer(early, early) - np.outer(late, late)
    # Sums along the diagonals: rows are shifted so that a diagonal becomes a column.
    width = 2 * TAPS
    shifted = np.zeros((TAPS, width))
    shifted[:, :TAPS] = steps[:, ::-1]
    columns = shifted.reshape(-1)[: TAPS * (width - 1)].reshape(TAPS, width - 1)
    np.cumsum(columns, axis=0, out=columns)
    sums: NDArray[np.float64] = shifted[:, TAPS - 1 :: -1].copy()
    return sums
