"""Comfort noise: how a silence sounds (RFC 3389), read from packets or taken from what was heard.

Noise is white samples through the impulse response of an all-pole filter, at a level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.int16]
Floats = NDArray[np.float64]

FULL_SCALE = 32768.0
ORDER = 8
"""Coefficients of a spectrum that was heard; RFC 3389 section 3.2 thinks of up to 10 at 8 kHz."""
MOST_COEFFICIENTS = 32
RESPONSE = 96
"""Samples of the impulse response that are used."""
WIDEN = 0.98
"""Draws the filter's poles inwards, so that the response has died away by then."""


@dataclass(frozen=True, slots=True)
class Silence:
    """How a silence sounds."""

    level_dbov: float
    """Decibels relative to full scale, 0 or less."""
    reflection: tuple[float, ...] = ()
    """Reflection coefficients of its spectrum, each between -1 and 1; none = white."""


def parse_comfort_noise(payload: bytes) -> Silence | None:
    """Read a payload of RFC 3389 section 3; None for one that is none."""
    if not payload:
        return None
    # Section 3.1: -dBov in 7 bits, the first is 0.
    level = -float(payload[0] & 0x7F)
    # Section 3.2: 8 bits each, 127 is zero; 255 is reserved.
    steps = [min(step, 254) for step in payload[1 : 1 + MOST_COEFFICIENTS]]
    return Silence(level, tuple(258 * (step - 127) / 32768 for step in steps))


def build_comfort_noise(silence: Silence) -> bytes:
    """Write a payload of RFC 3389 section 3."""
    level = min(127, max(0, round(-silence.level_dbov)))
    steps = (round(each * 32768 / 258) + 127 for each in silence.reflection[:MOST_COEFFICIENTS])
    return bytes((level, *(min(254, max(0, step)) for step in steps)))


def silence_of(samples: Samples) -> Silence:
    """How these samples, shape [n], would sound as a silence: their level and spectrum."""
    signal = samples.astype(np.float64)
    power = float(np.mean(signal**2)) if len(signal) else 0.0
    if power < 0.25:
        return Silence(-127.0)
    level = 10 * float(np.log10(power / FULL_SCALE**2))
    return Silence(level, _reflection(signal * np.hanning(len(signal))))


def _reflection(signal: Floats) -> tuple[float, ...]:
    """The Levinson-Durbin recursion."""
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
    """The impulse response of the filter, with an energy of 1; shape [RESPONSE]."""
    taps = np.array([1.0])
    for coefficient in reflection:
        taps = np.append(taps, 0.0)
        taps = taps + coefficient * taps[::-1]
    taps *= WIDEN ** np.arange(len(taps))
    response = np.zeros(RESPONSE)
    response[0] = 1.0
    for at in range(1, RESPONSE):
        past = response[max(0, at - len(taps) + 1) : at][::-1]
        response[at] = -float(taps[1 : len(past) + 1] @ past)
    scaled: Floats = response / np.sqrt(float(response @ response))
    return scaled


class ComfortNoise:
    """A source of noise without end; ``sound`` may change while it runs."""

    def __init__(self, silence: Silence | None = None, *, seed: int = 1) -> None:
        self._random = np.random.default_rng(seed)
        self._white = self._random.standard_normal(RESPONSE - 1)
        self._silence = Silence(-127.0)
        self._filter = _response(())
        self._scale = 0.0
        if silence is not None:
            self.sound(silence)

    @property
    def silence(self) -> Silence:
        """How it sounds."""
        return self._silence

    def sound(self, silence: Silence) -> None:
        """Sound like this from now on."""
        if silence == self._silence:
            return
        self._silence = silence
        self._filter = _response(silence.reflection)
        audible = silence.level_dbov > -90
        self._scale = FULL_SCALE * 10 ** (silence.level_dbov / 20) if audible else 0.0

    def make(self, count: int) -> Floats:
        """Return the next samples, shape [count]."""
        if not self._scale or not count:
            return np.zeros(count)
        white = np.concatenate((self._white, self._random.standard_normal(count)))
        self._white = white[len(white) - RESPONSE + 1 :]
        noise: Floats = np.convolve(white, self._filter, mode="valid") * self._scale
        return noise


class Background:
    """Learns how the far end's silence sounds, from the quietest of its frames."""

    EVERY = 4
    """One frame in so many is looked at: a pause is longer."""
    RISE = 1.08
    """A floor that is too low rises by this much at each look: a factor of 7 in two seconds."""
    LOOKS = 12
    """Before so many, the quietest frame may be speech, and nothing is believed."""
    MOST_GAIN = 20.0
    """What a filter of this order predicts to 13 dB is a voice (the bound of WebRTC's NetEQ)."""
    LOUDEST_DBOV = -40.0
    """What is louder is no background, or none that anybody wants to be continued."""

    def __init__(self) -> None:
        self._floor = np.inf
        self._frames = 0
        self._quietest: Samples | None = None  # not yet analysed
        self._silence = Silence(-127.0)

    @property
    def rms(self) -> float:
        """Its level as far as is known, a root mean square; 0 = nothing is known."""
        return self._floor if self._frames >= self.LOOKS * self.EVERY else 0.0

    @property
    def silence(self) -> Silence:
        """How it sounds, as far as is known."""
        if self._frames < self.LOOKS * self.EVERY:
            return Silence(-127.0)
        if self._quietest is not None:
            found, self._quietest = silence_of(self._quietest), None
            flatness = float(np.prod([1 - each**2 for each in found.reflection]))
            if flatness * self.MOST_GAIN >= 1:
                level = min(found.level_dbov, self.LOUDEST_DBOV)
                self._silence = Silence(level, found.reflection)
        return self._silence

    def hear(self, samples: Samples) -> None:
        """Take a frame, shape [n]."""
        self._frames += 1
        if self._frames % self.EVERY or not len(samples):
            return
        signal = samples.astype(np.float32)
        level = math.sqrt(float(signal @ signal) / len(signal))
        self._floor *= self.RISE
        if level <= self._floor:
            self._floor = max(level, 1.0)
            self._quietest = samples
