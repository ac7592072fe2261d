"""Streaming sample-rate conversion: a linear-phase FIR as one matrix product a block.

A group of inputs with the filter's history, times a fixed polyphase matrix, gives a group of
outputs. From 24 to 8 kHz this is a 145-tap Kaiser low-pass, delay 3 ms.

**Exact.** Taps are multiples of 2^-30 and samples have 16 bits, so each partial sum is a whole
number of 2^-30 below 2^53, which float64 holds without rounding: the output is bit-exact however
the input was cut, on every BLAS and CPU.

**Delay.** After n inputs, ceil(n * to / from) outputs have been returned. Output k shows the input
at k / to_hz - delay_s; `flush` gives ``delay_samples`` more. With ``aligned=True`` the first
``delay_samples`` are left out: output k shows the input at k / to_hz, round(n * to / from) in all.
The first is for calls, the second for files and positions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.errors import UnsupportedRate
from qwen3tts_codecs.pcm import Pcm, check_rate, check_samples

_TAP_UNIT = 2.0**-30
# Kaiser; 24 to 8 kHz: 4.6 kHz and up at -96 dB, 0.015 dB at 3.4 kHz (benchmarks/resample.py).
_BETA = 9.3
_CUT = 1.08  # the cut lies this far below the lower Nyquist rate, in units of it / half width
_GROUP_OUTPUTS = 16
_MAX_TABLE = 1 << 19
# OpenBLAS shares products above 2^18 multiplications among threads, which costs more than it gives.
_MAX_PRODUCT = 1 << 18
_BLOCK_S = 0.04  # one product takes this much audio at most; more is a matter of memory alone


@dataclass(frozen=True)
class _Table:
    up: int
    down: int
    delay: int
    """Group delay in output samples."""
    history: int
    """Inputs before a group that its outputs need."""
    inputs: int
    outputs: int
    taps: NDArray[np.float64]
    """The low-pass at the rate up * from_hz, which has a gain of ``up``; shape [taps]."""
    matrix: NDArray[np.float64]
    groups: int
    """Groups in one product at most; at least 2."""


def _half_width(lower_hz: int) -> int:
    """Half the filter's length, samples of the lower rate: 3 ms at 8 kHz, 2 ms at 16 kHz."""
    return 24 if lower_hz <= 8000 else 32


@lru_cache(maxsize=32)
def _table(from_hz: int, to_hz: int) -> _Table:
    common = math.gcd(from_hz, to_hz)
    up, down = to_hz // common, from_hz // common
    lower, prototype_hz = min(from_hz, to_hz), up * from_hz
    half_width = _half_width(lower)
    # A whole number of outputs, so that the delay can be taken off without a fraction left.
    delay = round(half_width * to_hz / lower)
    centre = delay * down
    history = 2 * centre // up
    repeat = max(1, _GROUP_OUTPUTS // up)
    inputs, outputs = repeat * down, repeat * up
    size = (history + inputs) * outputs
    if size > _MAX_TABLE:
        raise UnsupportedRate(
            f"{from_hz} to {to_hz} Hz is the ratio {up}:{down}, whose table would have {size} "
            f"entries (at most {_MAX_TABLE}); go by way of a rate that shares a factor with both"
        )
    cut = lower / 2 * (1 - _CUT / half_width)
    time = np.arange(-centre, centre + 1)
    low_pass = np.sinc(2 * cut / prototype_hz * time) * np.kaiser(2 * centre + 1, _BETA)
    # Column p are the taps of phase p, from the newest input of an output back in time.
    taps = np.zeros((history + 1, up))
    taps.reshape(-1)[: len(low_pass)] = low_pass
    for phase in range(up):
        taps[:, phase] = _whole(taps[:, phase])
    matrix = np.zeros((history + inputs, outputs))
    for output in range(outputs):
        newest, phase = divmod(output * down, up)
        matrix[newest : newest + history + 1, output] = taps[::-1, phase]
    taps = taps.reshape(-1)[: len(low_pass)]
    taps.flags.writeable = matrix.flags.writeable = False
    groups = max(2, min(_MAX_PRODUCT // size, math.ceil(_BLOCK_S * from_hz / inputs)))
    return _Table(up, down, delay, history, inputs, outputs, taps, matrix, groups)


def _whole(taps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale to a sum of exactly 1 in units, keeping levels."""
    whole = np.rint(taps / (taps.sum() * _TAP_UNIT))
    whole[np.argmax(whole)] += 1 / _TAP_UNIT - whole.sum()
    scaled: NDArray[np.float64] = whole * _TAP_UNIT
    return scaled


class Resampler:
    """Converter of one stream between two rates; `flush` ends it and resets.

    Rates are 4 to 192 kHz; a ratio without a manageable period (24000 to 23999) raises
    UnsupportedRate.
    """

    def __init__(self, from_hz: int, to_hz: int, *, aligned: bool = False) -> None:
        check_rate("from_hz", from_hz)
        check_rate("to_hz", to_hz)
        self.from_hz: Final = from_hz
        self.to_hz: Final = to_hz
        self.aligned: Final = aligned
        self._same = from_hz == to_hz
        table = _table(from_hz, to_hz)
        self._table = table
        rows, width = table.groups, table.history + table.inputs
        self._capacity = rows * table.inputs
        self._buffer = np.zeros(table.history + self._capacity, np.int16)
        # Row r shows the inputs of group r and their history; rows overlap by the history.
        self._windows = np.lib.stride_tricks.as_strided(
            self._buffer, (rows, width), (2 * table.inputs, 2), writeable=False
        )
        self._rows = np.zeros((rows, width))
        self._sums = np.zeros((rows, table.outputs))
        self._flat = self._sums.reshape(-1)
        self._fill = 0  # inputs in the buffer behind the history
        self._given = 0  # outputs of the buffer's first group that were returned already
        self._skip = self.delay_samples if aligned else 0
        self._in = 0
        self._out = 0

    @property
    def delay_samples(self) -> int:
        """Group delay of the filter in samples of ``to_hz``."""
        return 0 if self._same else self._table.delay

    @property
    def delay_s(self) -> float:
        return self.delay_samples / self.to_hz

    @property
    def taps(self) -> NDArray[np.float64]:
        """Low-pass filter at the rate ``taps_hz``, read-only, shape [taps]."""
        return np.ones(1) if self._same else self._table.taps

    @property
    def taps_hz(self) -> int:
        return math.lcm(self.from_hz, self.to_hz)

    def push(self, pcm: Pcm) -> Pcm:
        """Take samples, shape [n]; return those known now. Raises BadSamples."""
        check_samples(pcm, "Resampler.push")
        if self._same:
            return pcm.copy()
        self._in += len(pcm)
        return self._convert(pcm)

    def flush(self) -> Pcm:
        if self._same or not self._in:
            self.reset()
            return np.zeros(0, np.int16)
        table = self._table
        left = table.delay
        if self.aligned:
            left = round(Fraction(self._in * table.up, table.down)) - self._out
        # Silence for as many outputs, those that are yet to be skipped, and one more.
        behind = -(-(self._skip + left + 1) * table.down // table.up)
        rest = self._convert(np.zeros(behind, np.int16))
        self.reset()
        return rest[:left]

    def reset(self) -> None:
        self._buffer.fill(0)
        self._fill = self._given = self._in = self._out = 0
        self._skip = self.delay_samples if self.aligned else 0

    def _convert(self, pcm: Pcm) -> Pcm:
        parts = []
        done = 0
        while True:
            take = min(self._capacity - self._fill, len(pcm) - done)
            parts.append(self._block(pcm[done : done + take]))
            done += take
            if done == len(pcm):
                break
        samples = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if self._skip:
            skip = min(self._skip, len(samples))
            self._skip -= skip
            samples = samples[skip:]
        self._out += len(samples)
        return samples

    def _block(self, pcm: Pcm) -> Pcm:
        table, buffer = self._table, self._buffer
        end = self._fill + len(pcm)
        buffer[table.history + self._fill : table.history + end] = pcm
        # What lies behind ``end`` is old, and has taps of zero in every output that is returned.
        # Two groups at least: a single row goes another way in BLAS, by threads if it is long.
        rows = max(2, -(-end // table.inputs))
        inputs, sums = self._rows[:rows], self._sums[:rows]
        inputs[...] = self._windows[:rows]
        np.matmul(inputs, table.matrix, out=sums)
        np.rint(sums, out=sums)
        np.minimum(sums, 32767.0, out=sums)
        np.maximum(sums, -32768.0, out=sums)
        known = -(-end * table.up // table.down)
        samples: Pcm = self._flat[self._given : known].astype(np.int16)
        groups = end // table.inputs
        used = groups * table.inputs
        buffer[: table.history + end - used] = buffer[used : table.history + end]
        self._fill = end - used
        self._given = known - groups * table.outputs
        return samples


class RateConverter:
    """Converter of a stream whose rate may change; that restarts the filter."""

    def __init__(self, to_hz: int) -> None:
        self.to_hz: Final = to_hz
        self._resampler: Resampler | None = None

    def push(self, samples: Pcm, from_hz: int) -> Pcm:
        """Take int16 samples, shape [n], at ``from_hz``; return ready ones."""
        if from_hz == self.to_hz:
            self._resampler = None
            return samples
        if self._resampler is None or self._resampler.from_hz != from_hz:
            self._resampler = Resampler(from_hz, self.to_hz)
        return self._resampler.push(samples)
