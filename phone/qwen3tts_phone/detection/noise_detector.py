"""Voice activity detection in noise and among other voices (pure): a detector around a detector.

Two things make a detector fail on a noisy line. In *steady* noise (a fan, a car, a street) it
hears callers late or not: there it is asked a second time, of the suppressed sound, and the higher
probability counts. Among *other voices* (an office, a bar, a train) it hears speech all the time,
of which no one speaks to the agent, and suppression makes that worse: there the caller is who
stands out, in level and in probability, for some time. On any other line nothing is changed.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

import numpy as np
from numpy.typing import NDArray

from qwen3tts_phone.detection.noise_suppression import HOP_S, NoiseSuppressor
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.detection.silero import SileroDetector
from qwen3tts_phone.detection.vad import RATE_HZ, VoiceActivityDetector

Samples = NDArray[np.int16]

PAST_S: Final = 3.0
"""Sound by which the background is judged."""
CHECK_S: Final = 0.125
"""Interval of that judgement."""
CROWD_RANGE_DB: Final = 11.0
"""Range of levels, between the 10th and the 90th percentile, below which there is no pause. Eight
voices together have 4 to 10 dB, one voice alone 12 to 40.
"""
CROWD_DBFS: Final = -58.0
"""Level below which there is no crowd: the line's own noise."""
PAUSE_DB: Final = 6.0
"""Level below a crowd's quiet part that is a pause: the crowd has gone."""
LATELY_S: Final = 0.5
"""Span of which a quarter must be a pause."""
STEADY_STEP_DB: Final = 0.45
"""Change of level from window to window, in the quieter part, below which a noise is steady: white,
pink and street noise have 0.3 to 0.6 dB, babble and music 0.7 to 3.
"""
UNSTEADY_STEP_DB: Final = 0.6
"""The same for noise that was steady before."""
QUIETER: Final = 40
"""Percentile of the levels below which a window is of the background."""
STILL: Final = 0.1
"""Probability that must not be exceeded now and then: a detector that never does is misled."""

# Weights of level and log odds of the caller against the background, by logistic regression on
# 32,000 windows of callers in babble at 0 to 10 dB (eSpeak's voices and recorded people).
_BY_LEVEL: Final = 0.55
_BY_ODDS: Final = 1.5
_BIAS: Final = -5.3
_SHARE: Final = 0.35
"""Share of that evidence that is new in a window: neighbours are alike."""
_BEGINS: Final = 3e-4
_ENDS: Final = 0.05
"""Probabilities that a caller begins, or ends, from one window of 32 ms to the next."""
_CERTAIN: Final = 1e-3
_LOUD_DB: Final = 3.0
_BY_LOUDNESS: Final = 1.0
"""Log odds of each dB that the sound is further above the loud part of the background: voices
together do not reach it.
"""


def with_suppression(
    detector: VoiceActivityDetector, settings: ListenSettings
) -> VoiceActivityDetector:
    """Return the detector as ``noise_suppression`` wants it.

    It is of use to ``silero`` alone: the others know speech and none, or the level.
    """
    if settings.noise_suppression == "off" or not isinstance(detector, SileroDetector):
        return detector
    always = settings.noise_suppression == "on"
    return NoiseAwareDetector(detector, SileroDetector(), always=always)


class NoiseAwareDetector:
    """Detector of one stream that minds noise and other voices.

    Args:
        plain: detector of the sound as it comes.
        second: another of the same kind, for the suppressed sound.
        always: suppress at any signal-to-noise ratio.
    """

    def __init__(
        self,
        plain: VoiceActivityDetector,
        second: VoiceActivityDetector,
        *,
        always: bool = False,
    ) -> None:
        self.window = plain.window
        self._plain = plain
        self._second = second
        self._suppressor = NoiseSuppressor(RATE_HZ, always=always)
        hop = round(HOP_S * RATE_HZ)
        self._lag = self._suppressor.delay_samples + hop - math.gcd(self.window, hop)
        """Samples by which the second's windows are older, for all of them to be complete."""
        self.reset()

    def reset(self) -> None:
        self._plain.reset()
        self._second.reset()
        self._suppressor.reset()
        self._background = Background(self.window / RATE_HZ)
        self._held: Samples = np.zeros(0, np.int16)
        self._cleaned: Samples = np.zeros(self._lag, np.int16)
        self._asked = False

    def push(self, samples: Samples) -> list[float]:
        """Return the probability that the caller speaks, 0 to 1, of each complete window."""
        held = np.concatenate((self._held, samples)) if len(self._held) else samples
        count = len(held) // self.window
        self._held = held[count * self.window :].copy()
        windows = held[: count * self.window].reshape(count, self.window)
        return [self._window(window) for window in windows]

    def _window(self, samples: Samples) -> float:
        probability = self._plain.push(samples)[0]
        self._cleaned = np.concatenate((self._cleaned, self._suppressor.push(samples)))
        cleaned, self._cleaned = np.split(self._cleaned, [self.window])
        second = None
        if self._suppressor.working:
            if not self._asked:
                self._second.reset()
            second = self._second.push(cleaned)[0]
        self._asked = self._suppressor.working
        signal = samples.astype(np.float64)
        dbfs = 10 * math.log10(float(signal @ signal) / len(signal) / 32768.0**2 + 1e-12)
        return self._background.push(dbfs, probability, second)


class Background:
    """What sounds while the caller does not speak, and the caller against it (pure)."""

    def __init__(self, window_s: float) -> None:
        past = round(PAST_S / window_s)
        self._levels: deque[float] = deque(maxlen=past)
        self._seconds: deque[float] = deque(maxlen=past)
        self._every = max(1, round(CHECK_S / window_s))
        self._lately = max(4, round(LATELY_S / window_s))
        self._count = 0
        self._windows = window_s / 0.032
        """Windows of 32 ms in one of these."""
        self._low = self._high = 0.0  # levels of the crowd
        self._crowded = False
        self._steady = False
        self._speaking = _BEGINS

    @property
    def crowded(self) -> bool:
        """True where sound never pauses."""
        return self._crowded

    @property
    def steady(self) -> bool:
        """True where the noise keeps its level, and a detector is not misled by what is left."""
        return self._steady

    def push(self, dbfs: float, plain: float, second: float | None) -> float:
        """Take a window's level and probabilities; return that of the caller's speech.

        ``second``: of the suppressed sound; None = nothing is suppressed.
        """
        if self._count % self._every == 0 or self._count < self._every:
            self._judge(dbfs)
        self._count += 1
        self._levels.append(dbfs)
        self._seconds.append(plain if second is None else second)
        if self._steady:
            self._speaking = plain if second is None else max(plain, second)
        elif self._crowded and dbfs < self._low + 2 * CROWD_RANGE_DB:
            self._speaking = self._against(dbfs, plain)
        else:
            self._speaking = plain
        return self._speaking

    def _judge(self, dbfs: float) -> None:
        levels = np.array(self._levels or [dbfs])
        low, quieter, high = _percentiles(levels, 10, QUIETER, 90)
        if high - low < CROWD_RANGE_DB and low > CROWD_DBFS:
            self._crowded, self._low, self._high = True, low, high
        elif self._crowded:  # the caller speaks among them, or they have gone
            lately = np.sort(levels[-self._lately :])
            self._crowded = bool(lately[len(lately) // 4] > self._low - PAUSE_DB)
        limit, self._steady = UNSTEADY_STEP_DB if self._steady else STEADY_STEP_DB, False
        if len(levels) >= 3 * self._lately:
            background = levels <= quieter
            steps = np.abs(np.diff(levels))[background[1:] & background[:-1]]
            if len(steps) and _percentiles(steps, 50)[0] < limit:
                (still,) = _percentiles(np.array(self._seconds), QUIETER // 2)
                self._steady = still < STILL

    def _against(self, dbfs: float, plain: float) -> float:
        """The forward step of a model of two states: the caller speaks, or the others alone."""
        known = min(max(plain, _CERTAIN), 1 - _CERTAIN)
        above = min(max(dbfs - self._low, -5.0), 15.0)
        evidence = _BY_LEVEL * above + _BY_ODDS * math.log(known / (1 - known)) + _BIAS
        before = min(max(self._speaking, 1e-6), 1 - 1e-6)
        begins, ends = _BEGINS * self._windows, _ENDS * self._windows
        expected = before * (1 - ends) + (1 - before) * begins
        loud = _BY_LOUDNESS * max(0.0, dbfs - self._high - _LOUD_DB) if plain > 0.5 else 0.0
        odds = math.log(expected / (1 - expected)) + self._windows * (_SHARE * evidence + loud)
        return 1 / (1 + math.exp(-min(max(odds, -30.0), 30.0)))


def _percentiles(values: NDArray[np.float64], *wanted: int) -> list[float]:
    """The nearest of the values; numpy's own function takes ten times as long."""
    ordered = np.sort(values)
    return [float(ordered[(len(ordered) - 1) * each // 100]) for each in wanted]
