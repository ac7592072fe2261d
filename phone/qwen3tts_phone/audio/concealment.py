"""Packet loss concealment (ITU-T G.711 Appendix I) and comfort noise (RFC 3389)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.pitch import period_of_end
from qwen3tts_codecs.resample import Resampler

Samples = NDArray[np.int16]
Floats = NDArray[np.float64]

FULL_SCALE = 32768.0
ORDER = 8
"""Coefficients of a spectrum that was heard; RFC 3389 section 3.2 thinks of up to 10 at 8 kHz."""
MAX_COEFFICIENTS = 32
RESPONSE_SAMPLES = 96
"""Samples of the impulse response that are used."""
BANDWIDTH_EXPANSION = 0.98
"""Bandwidth expansion: the response decays within `RESPONSE_SAMPLES`."""


WINDOW_MS = 12.0
"""Correlation window of the pitch search; 10 to 15 are as good (PESQ within 0.02)."""
HISTORY_MS = 50.0
STEADY_MS = 10.0
"""Time at full level."""
FADE_MS = 60.0
"""Time until silence."""
QUIET_RMS = 50.0
"""-56 dBFS."""
LOUD_RMS = 330.0
"""-40 dBFS, the highest level of a background."""
MERGE_MS = 4.0
"""Length of the cross-fade for each 10 ms lost."""
MERGE_MOST_MS = 5.0


@dataclass(frozen=True, slots=True)
class NoiseSpec:
    level_dbov: float
    """Decibels relative to full scale, 0 or less."""
    reflection: tuple[float, ...] = ()
    """Reflection coefficients of its spectrum, each between -1 and 1; none = white."""


def parse_comfort_noise(payload: bytes) -> NoiseSpec | None:
    if not payload:
        return None
    # Section 3.1: -dBov in 7 bits, the first is 0.
    level = -float(payload[0] & 0x7F)
    # Section 3.2: 8 bits each, 127 is zero; 255 is reserved.
    steps = [min(step, 254) for step in payload[1 : 1 + MAX_COEFFICIENTS]]
    return NoiseSpec(level, tuple(258 * (step - 127) / 32768 for step in steps))


def build_comfort_noise(silence: NoiseSpec) -> bytes:
    level = min(127, max(0, round(-silence.level_dbov)))
    steps = (round(each * 32768 / 258) + 127 for each in silence.reflection[:MAX_COEFFICIENTS])
    return bytes((level, *(min(254, max(0, step)) for step in steps)))


def measure_noise(samples: Samples) -> NoiseSpec:
    """Measure level and spectrum of samples of shape [n]."""
    signal = samples.astype(np.float64)
    power = float(np.mean(signal**2)) if len(signal) else 0.0
    if power < 0.25:
        return NoiseSpec(-127.0)
    level = 10 * float(np.log10(power / FULL_SCALE**2))
    return NoiseSpec(level, _reflection(signal * np.hanning(len(signal))))


def _reflection(signal: Floats) -> tuple[float, ...]:
    count = min(ORDER, len(signal) - 1)
    auto = np.array([float(signal[: len(signal) - lag] @ signal[lag:]) for lag in range(count + 1)])
    if auto[0] <= 0:
        return ()
    auto[0] *= 1.0001  # a floor of noise, so that the filter stays tame
    error, taps, found = auto[0], np.array([1.0]), []
    for order in range(1, count + 1):
        coefficient = -float(taps @ auto[order:0:-1]) / error
        taps = np.append(taps, 0.0)
        taps = taps + coefficient * taps[::-1]
        error *= 1 - coefficient**2
        found.append(coefficient)
        if error <= 0:
            break
    return tuple(found)


def _response(reflection: Sequence[float]) -> Floats:
    """Impulse response of unit energy, shape [RESPONSE_SAMPLES]."""
    taps = np.array([1.0])
    for coefficient in reflection:
        taps = np.append(taps, 0.0)
        taps = taps + coefficient * taps[::-1]
    taps *= BANDWIDTH_EXPANSION ** np.arange(len(taps))
    response = np.zeros(RESPONSE_SAMPLES)
    response[0] = 1.0
    for at in range(1, RESPONSE_SAMPLES):
        past = response[max(0, at - len(taps) + 1) : at][::-1]
        response[at] = -float(taps[1 : len(past) + 1] @ past)
    scaled: Floats = response / np.sqrt(float(response @ response))
    return scaled


class ComfortNoise:
    def __init__(self, silence: NoiseSpec | None = None, *, seed: int = 1) -> None:
        self._random = np.random.default_rng(seed)
        self._white = self._random.standard_normal(RESPONSE_SAMPLES - 1)
        self._silence = NoiseSpec(-127.0)
        self._filter = _response(())
        self._scale = 0.0
        if silence is not None:
            self.configure(silence)

    @property
    def silence(self) -> NoiseSpec:
        return self._silence

    def configure(self, silence: NoiseSpec) -> None:
        if silence == self._silence:
            return
        self._silence = silence
        self._filter = _response(silence.reflection)
        audible = silence.level_dbov > -90
        self._scale = FULL_SCALE * 10 ** (silence.level_dbov / 20) if audible else 0.0

    def generate(self, count: int) -> Floats:
        if not self._scale or not count:
            return np.zeros(count)
        white = np.concatenate((self._white, self._random.standard_normal(count)))
        self._white = white[len(white) - RESPONSE_SAMPLES + 1 :]
        noise: Floats = np.convolve(white, self._filter, mode="valid") * self._scale
        return noise


class BackgroundEstimator:
    """Estimator of the far end's background noise from its quietest frames."""

    EVERY = 4
    """Frames per look; a pause is longer."""
    RISE = 1.08
    """A floor that is too low rises by this much at each look: a factor of 7 in two seconds."""
    LOOKS = 12
    """Looks until the estimate is used; before, the quietest frame may be speech."""
    MOST_GAIN = 20.0
    """Prediction gain above which the sound is a voice, 13 dB (the bound of WebRTC's NetEQ)."""
    LOUDEST_DBOV = -40.0
    """Highest level of a background."""

    def __init__(self) -> None:
        self._floor = np.inf
        self._frames = 0
        self._quietest: Samples | None = None  # not yet analysed
        self._silence = NoiseSpec(-127.0)

    @property
    def rms(self) -> float:
        return self._floor if self._frames >= self.LOOKS * self.EVERY else 0.0

    @property
    def silence(self) -> NoiseSpec:
        if self._frames < self.LOOKS * self.EVERY:
            return NoiseSpec(-127.0)
        if self._quietest is not None:
            found, self._quietest = measure_noise(self._quietest), None
            flatness = float(np.prod([1 - each**2 for each in found.reflection]))
            if flatness * self.MOST_GAIN >= 1:
                level = min(found.level_dbov, self.LOUDEST_DBOV)
                self._silence = NoiseSpec(level, found.reflection)
        return self._silence

    def update(self, samples: Samples) -> None:
        self._frames += 1
        if self._frames % self.EVERY or not len(samples):
            return
        signal = samples.astype(np.float32)
        level = math.sqrt(float(signal @ signal) / len(signal))
        self._floor *= self.RISE
        if level <= self._floor:
            self._floor = max(level, 1.0)
            self._quietest = samples


class Concealer:
    """Packet loss concealment of one stream (pure)."""

    def __init__(self, rate_hz: int, history: Samples | None = None) -> None:
        self.rate_hz = rate_hz
        self._size = self._count(HISTORY_MS)
        self._recent: deque[Samples] = deque((np.zeros(self._size, np.int16),))
        self._recent_size = self._size
        if history is not None:
            self._remember(history)
        self._background = BackgroundEstimator()
        self._noise = ComfortNoise()
        self._gap: _Gap | None = None
        self._resting: NoiseSpec | None = None

    def at_rate(self, rate_hz: int) -> Concealer:
        resampler = Resampler(self.rate_hz, rate_hz, aligned=True)
        history = np.concatenate((resampler.push(self.history), resampler.flush()))
        concealer = Concealer(rate_hz, history)
        concealer._background, concealer._noise = self._background, self._noise
        return concealer

    @property
    def history(self) -> Samples:
        return np.concatenate(self._recent)[-self._size :]

    @property
    def quiet_rms(self) -> float:
        return min(LOUD_RMS, max(QUIET_RMS, 2 * self._background.rms))

    @property
    def lost_s(self) -> float:
        return 0.0 if self._gap is None else self._gap.done / self.rate_hz

    def accept(self, samples: Samples) -> Samples:
        """Take a received frame, shape [n]; return it, faded in after concealment."""
        self._background.update(samples)
        gap, self._gap, self._resting = self._gap, None, None
        if gap is not None:
            samples = self._merge(gap, samples)
        self._remember(samples)
        return samples

    def use_comfort_noise(self, silence: NoiseSpec) -> None:
        self._resting = silence
        self._noise.configure(silence)

    def fill(self, count: int) -> Samples:
        if self._gap is None:
            self._noise.configure(self._resting or self._background.silence)
            self._gap = _Gap(self.history.astype(np.float64), self.rate_hz)
            if self._resting is not None:
                self._gap.done = self._count(FADE_MS)
        made = _samples(self._made(self._gap, count))
        self._remember(made)
        return made

    def _made(self, gap: _Gap, count: int) -> Floats:
        gains = gap.gains(count)
        made: Floats = gap.next(count) * gains + self._noise.generate(count) * (1 - gains)
        return made

    def _merge(self, gap: _Gap, samples: Samples) -> Samples:
        lost_ms = 1000 * gap.done / self.rate_hz
        merge_ms = min(
            MERGE_MOST_MS, 1000 * gap.period / self.rate_hz / 4 + MERGE_MS * lost_ms / 10
        )
        count = min(len(samples), self._count(merge_ms))
        rise = (np.arange(count) + 0.5) / max(1, count)
        merged = samples.copy()
        merged[:count] = _samples(samples[:count] * rise + self._made(gap, count) * (1 - rise))
        return merged

    def _remember(self, samples: Samples) -> None:
        recent = self._recent
        recent.append(samples)
        self._recent_size += len(samples)
        while self._recent_size - len(recent[0]) >= self._size:
            self._recent_size -= len(recent.popleft())

    def _count(self, ms: float) -> int:
        return round(ms * self.rate_hz / 1000)


class _Gap:
    def __init__(self, history: Floats, rate_hz: int) -> None:
        self._history = history
        self._rate_hz = rate_hz
        window = round(WINDOW_MS * rate_hz / 1000)
        self.period, voiced = period_of_end(history, rate_hz, window)
        self.done = 0
        self._voiced = min(1.0, max(0.0, (voiced - 0.2) / 0.3))
        self._breath: ComfortNoise | None = None
        if self._voiced < 1:
            self._breath = ComfortNoise(measure_noise(_samples(history[-window:])))
        self._periods = 0
        self._cycle = self._phase = history[:0]
        self._phase_at = 0
        self._use(1)
        # The natural neighbour of the cycle's first sample is the one before it.
        step = history[-1] - history[-1 - self.period]
        self._step = step * self._voiced
        self._step_count = max(1, self.period // 4)

    def gains(self, count: int) -> Floats:
        ms = 1000 * (self.done + np.arange(count)) / self._rate_hz
        levels: Floats = np.clip((FADE_MS - ms) / (FADE_MS - STEADY_MS), 0.0, 1.0)
        return levels

    def next(self, count: int) -> Floats:
        # Appendix I: after 10 ms two periods take turns, after 20 ms three, or it would buzz.
        lost_ms = 1000 * self.done / self._rate_hz
        self._use(1 if lost_ms < 10 else 2 if lost_ms < 20 else 3)
        at = (self._phase_at + np.arange(count)) % len(self._cycle)
        self._phase_at = (self._phase_at + count) % len(self._cycle)
        made = self._cycle[at] * self._voiced
        if self._breath is not None:
            made = made + self._breath.generate(count) * np.sqrt(1 - self._voiced**2)
        if self.done < self._step_count:
            left = self._step_count - self.done
            share = np.clip((left - np.arange(count)) / self._step_count, 0.0, 1.0)
            made = made + self._step * share
        self.done += count
        result: Floats = made
        return result

    def _use(self, periods: int) -> None:
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
