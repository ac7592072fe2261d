"""Noise suppression of one stream at 8 or 16 kHz (pure).

    suppressor = NoiseSuppressor(8000)
    cleaned = suppressor.push(samples)     # continues the input, 10 ms behind it

A spectrum each 10 ms over the last 32 ms; the noise's power in each bin by its probability of
being speech (Gerkmann and Hendriks, IEEE TASL 2012, with a fixed prior); the signal-to-noise ratio
by the decision-directed rule (Ephraim and Malah 1984); the square root of Wiener's gain, never
below `FLOOR_DB`: recognisers mind what a stronger suppressor does to speech more than they mind
the noise. The synthesis window covers the last 20 ms alone, hence the delay of 10 ms.
"""

from __future__ import annotations

import math
from collections import deque
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.errors import UnsupportedRate
from qwen3tts_codecs.pcm import check_samples

Samples = NDArray[np.int16]
Floats = NDArray[np.float64]

RATES_HZ: Final = (8000, 16_000)
HOP_S: Final = 0.01
WINDOW_S: Final = 0.032
DELAY_S: Final = 0.01
"""Delay for frames of a whole number of `HOP_S`; of others, up to a hop more."""
FLOOR_DB: Final = -10.0
"""Least gain: more is heard by recognisers as distortion."""
ON_BELOW_DB: Final = 12.0
"""Signal-to-noise ratio below which the noise is suppressed..."""
OFF_ABOVE_DB: Final = 15.0
"""...and above which no longer."""
QUIET_DBFS: Final = -62.0
"""Noise below this is the line's own (quantisation of G.711): never suppressed."""
FADE_HOPS: Final = 10
"""Length of the crossfade between the sound and the suppressed sound."""
IDLE_HOPS: Final = 4
"""Of so many hops one is looked at while the line is clean."""
SPEECH_DBFS: Final = -24.0
"""Level that is assumed before the caller has spoken (ITU-T P.56 levels of telephony)."""

STEADY_STEP_DB: Final = 0.85
"""Change of level within 30 ms, in the quieter part, of noise that can be followed: white, pink and
street noise have 0.3 to 0.8 dB. Babble and music have more; suppressing them harms recognition.
"""
UNSTEADY_STEP_DB: Final = 1.15
"""The same for noise that was steady before."""
STEADY_S: Final = 3.0
"""Span of that judgement; at first a third of it."""

_LEVEL_HOPS: Final = 3
_QUIETER: Final = 0.4
_SPEECH_PRIOR: Final = 10**1.5  # signal-to-noise ratio of speech where there is some: 15 dB
_NOISE_KEPT: Final = 0.8
_PRESENCE_KEPT: Final = 0.9
_STUCK: Final = 0.99  # a bin in which speech never pauses is noise whose level has changed
_SNR_KEPT: Final = 0.95
_LEAST_SNR: Final = 10**-2.5
_FIRST_HOPS: Final = 8  # of which the mean is the first noise
_STANDS_OUT: Final = 4.0  # power over the noise of a hop that has speech
_LEVEL_KEPT: Final = 0.98
_LOUDER_KEPT: Final = 0.9
_SILENT: Final = (
    16.0  # power of no bin above it: nothing was sent, which tells nothing of the noise
)


class _Shape(NamedTuple):
    window: int
    hop: int
    analysis: Floats
    synthesis: Floats
    """Of the last two hops."""


@lru_cache(maxsize=4)
def _shape(rate_hz: int) -> _Shape:
    window, hop = round(WINDOW_S * rate_hz), round(HOP_S * rate_hz)
    rise = window - hop
    analysis = np.concatenate(
        (
            np.sin(np.pi / 2 * (np.arange(rise) + 0.5) / rise),
            np.cos(np.pi / 2 * (np.arange(hop) + 0.5) / hop),
        )
    )
    last = 2 * hop
    # Both windows together are Hann's, whose halves add to 1.
    hann = np.sin(np.pi * (np.arange(last) + 0.5) / last) ** 2
    synthesis = hann / analysis[-last:]
    analysis.flags.writeable = synthesis.flags.writeable = False
    return _Shape(window, hop, analysis, synthesis)


class NoiseSuppressor:
    """Suppressor of one stream. Raises UnsupportedRate, BadSamples.

    Args:
        rate_hz: 8000 or 16000.
        always: suppress at any signal-to-noise ratio; False = below `ON_BELOW_DB`, and otherwise
            return the samples as they came.
    """

    def __init__(self, rate_hz: int = 8000, *, always: bool = False) -> None:
        if rate_hz not in RATES_HZ:
            raise UnsupportedRate(f"noise is suppressed at 8000 or 16000 Hz, not at {rate_hz!r}")
        self.rate_hz: Final = rate_hz
        self.delay_samples: Final = round(DELAY_S * rate_hz)
        self._always = always
        self._shape = _shape(rate_hz)
        self.reset()

    def reset(self) -> None:
        window, hop, _, _ = self._shape
        self._held = np.zeros(window - hop)  # the window's past, then what is not yet analysed
        self._tail = np.zeros(hop)  # of the last synthesis
        self._hops = 0
        self._counted = 0
        bins = window // 2 + 1
        self._noise = np.ones(bins)
        self._presence = np.full(bins, 0.5)
        self._clean = np.zeros(bins)  # power of the speech in the last hop
        self._speech_power = 10 ** (SPEECH_DBFS / 10)
        self._wet = 0.0  # share of the suppressed sound
        self._working = self._always
        self._idle = False
        self._steady = False
        self._levels: deque[float] = deque(maxlen=round(STEADY_S / (_LEVEL_HOPS * HOP_S)))
        self._warm = False  # whether ``_tail`` is of the last hop

    @property
    def working(self) -> bool:
        """True if it suppresses, False if it passes the sound on."""
        return self._working

    @property
    def noise_dbfs(self) -> float:
        """Level of the noise, dB of full scale."""
        return 10 * math.log10(self._power(self._noise) + 1e-12)

    @property
    def snr_db(self) -> float:
        return 10 * math.log10(self._speech_power / max(self._power(self._noise), 1e-10))

    @property
    def held_samples(self) -> int:
        window, hop, _, _ = self._shape
        return len(self._held) - (window - hop) + (hop if self._hops else 0)

    def push(self, samples: Samples) -> Samples:
        """Take samples [n]; return those that are complete: all but the last 10 ms."""
        check_samples(samples, "NoiseSuppressor.push")
        window, hop, _, _ = self._shape
        self._held = np.concatenate((self._held, samples))
        count = (len(self._held) - (window - hop)) // hop
        if count <= 0:
            return np.zeros(0, np.int16)
        parts = [
            self._step(self._held[number * hop : number * hop + window]) for number in range(count)
        ]
        self._held = self._held[count * hop :].copy()
        # The first hop of a stream completes what was before it.
        if not self._hops:
            parts[0] = parts[0][:0]
        self._hops += count
        return np.concatenate(parts)

    def flush(self) -> Samples:
        """Return what is left of the stream, and begin another."""
        hop = self._shape.hop
        left = self.held_samples
        if not left:
            return np.zeros(0, np.int16)
        last = self.push(np.zeros(2 * hop, np.int16))[:left]
        self.reset()
        return last

    # --- inside

    def _step(self, piece: Floats) -> Samples:
        window, hop, analysis, synthesis = self._shape
        plain = piece[-2 * hop : -hop].astype(np.int16)
        number, self._counted = self._counted, self._counted + 1
        if self._idle and number % IDLE_HOPS:
            return plain
        spectrum = np.fft.rfft(piece * analysis)
        power = spectrum.real**2 + spectrum.imag**2 + 1.0
        if power.max() > _SILENT:
            self._track(power, number, IDLE_HOPS if self._idle else 1)
        wanted = 1.0 if self._working else 0.0
        if self._wet == wanted == 0.0:
            self._clean = power
            self._warm = False
            return plain
        sound = np.fft.irfft(spectrum * self._gain(power), window)[-2 * hop :] * synthesis
        whole, self._tail = self._tail + sound[:hop], sound[hop:]
        if not self._warm:
            self._warm = True
            return plain
        before = self._wet
        step = 1 / FADE_HOPS
        self._wet = min(1.0, before + step) if wanted else max(0.0, before - step)
        if before != 1.0 or self._wet != 1.0:
            wet = np.linspace(before, self._wet, hop, endpoint=False)
            whole = plain + wet * (whole - plain)
        return np.rint(np.clip(whole, -32768, 32767)).astype(np.int16)

    def _track(self, power: Floats, number: int, hops: int) -> None:
        """Follow the noise, the speech's level, and whether to work; once in so many hops."""
        if number < _FIRST_HOPS:
            self._noise = self._noise + (power - self._noise) / (number + 1)
        over = np.minimum(power / self._noise, 80.0)
        exponent = over * (_SPEECH_PRIOR / (1 + _SPEECH_PRIOR))
        speech = 1 / (1 + (1 + _SPEECH_PRIOR) * np.exp(-exponent))
        kept = _PRESENCE_KEPT**hops
        self._presence = kept * self._presence + (1 - kept) * speech
        speech = np.where(self._presence > _STUCK, np.minimum(speech, _STUCK), speech)
        kept = _NOISE_KEPT**hops
        self._noise = self._noise + (1 - kept) * (1 - speech) * (power - self._noise)
        total, noise = self._power(power), self._power(self._noise)
        if number >= _FIRST_HOPS and total > _STANDS_OUT * noise:
            level = max(total - noise, 1e-10)
            kept = (_LEVEL_KEPT if level < 4 * self._speech_power else _LOUDER_KEPT) ** hops
            self._speech_power = kept * self._speech_power + (1 - kept) * level
        if not self._always:
            if hops > 1 or number % _LEVEL_HOPS == 0:
                self._judge(10 * math.log10(total + 1e-12))
            snr_db, quiet = self.snr_db, self.noise_dbfs < QUIET_DBFS
            limit = OFF_ABOVE_DB if self._working else ON_BELOW_DB
            self._working = self._steady and snr_db < limit and not quiet
            self._idle = (
                number >= _FIRST_HOPS
                and not self._working
                and self._wet == 0.0
                and (quiet or snr_db > OFF_ABOVE_DB + 3)
            )

    def _judge(self, dbfs: float) -> None:
        """Tell noise that keeps its level from voices and music."""
        self._levels.append(dbfs)
        if len(self._levels) < STEADY_S / 3 / (_LEVEL_HOPS * HOP_S) or len(self._levels) % 5:
            return
        levels = np.array(self._levels)
        quieter = levels <= np.sort(levels)[int(_QUIETER * (len(levels) - 1))]
        steps = np.sort(np.abs(np.diff(levels))[quieter[1:] & quieter[:-1]])
        if len(steps):
            limit = UNSTEADY_STEP_DB if self._steady else STEADY_STEP_DB
            self._steady = bool(steps[len(steps) // 2] < limit)

    def _gain(self, power: Floats) -> Floats:
        over = np.minimum(power / self._noise, 1e5)
        snr = _SNR_KEPT * self._clean / self._noise + (1 - _SNR_KEPT) * np.maximum(over - 1, 0)
        snr = np.maximum(snr, _LEAST_SNR)
        gain: Floats = np.sqrt(snr / (1 + snr))
        self._clean = gain * gain * power
        return np.maximum(gain, 10 ** (FLOOR_DB / 20))

    def _power(self, power: Floats) -> float:
        """Mean square of full scale 1 of a one-sided power spectrum."""
        window, _, analysis, _ = self._shape
        total = 2 * float(power.sum()) / (window * float(analysis @ analysis))
        return total / 32768.0**2
