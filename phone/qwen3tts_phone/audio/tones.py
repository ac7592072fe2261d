"""Call progress tones, fax tones and beeps, detected in a 10 ms spectrum."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

SHARE: Final = 0.85
"""Share of the power in a tone: 7.5 dB above the noise."""
FLAT_DB: Final = 4.0
"""A beep's level stays within this; a bell, a plucked string and a voice do not."""
CADENCE_STEADY_HZ: Final = 8.0
"""A beep's pitch stays within this; that of a hummed sound does not."""
PROGRESS_HZ: Final = (330.0, 640.0)
SIT_HZ: Final = ((880.0, 1020.0), (1330.0, 1470.0), (1700.0, 1850.0))
SIT_S: Final = (0.18, 0.6)


RATES_HZ: Final = (8000, 16000, 24000, 48000)
HOP_S: Final = 0.01
WINDOW_S: Final = 0.04
"""A Hann window: a tone fills 4 bins of 25 Hz."""
BIN_HZ: Final = 25.0
LOW_HZ: Final = 225.0
HIGH_HZ: Final = 3700.0
"""Telephone band without mains hum and its overtones."""
LOBE: Final = 2
"""Bins on each side of a peak that belong to it."""
SILENCE_DBFS: Final = -100.0
TONE_DBFS: Final = -45.0
PAIR: Final = 0.92
STEADY_HZ: Final = 14.0
"""A tone wanders less than this: neighbouring notes of music and voices do not."""
BREAK_HOPS: Final = 2
"""Frames of other sound that end a tone."""
BEEP_HZ: Final = (380.0, 2100.0)
BEEP_S: Final = (0.065, 2.0)
"""As measured; the window takes up to 15 ms off."""
BEEP_PAIR_S: Final = 0.15
"""Shortest beep of two simultaneous tones; two overtones of a hum are shorter."""
BEEP_QUIET_S: Final = 0.25
"""Quiet after a beep, 6 dB below it or more; music goes on."""
BEEP_APART_S: Final = 0.15
"""A beep does not follow another tone as closely as this: a melody does."""
DIAL_S: Final = 3.0


class ToneKind(StrEnum):
    RINGBACK = "ringback"
    BUSY = "busy"
    CONGESTION = "congestion"
    """All lines are taken: the busy tone, twice as fast."""
    DIAL = "dial"
    """A line that waits for a number; also what remains when the other side has hung up."""
    SIT = "sit"
    """Three rising tones: the number is out of use, or the call cannot be made."""
    FAX_CNG = "fax_cng"
    """A fax machine calls."""
    FAX_CED = "fax_ced"
    """A fax machine or modem answers."""
    BEEP = "beep"
    """A tone alone: an answering machine begins to record."""


@dataclass(slots=True)
class ToneSegment:
    began_s: float
    hz: float
    ended_s: float
    levels: list[float]
    pitches: list[float]
    shares: list[float]
    lowest_hz: float
    """The lower of the two strongest peaks at the beginning."""
    told: bool = False

    @property
    def seconds(self) -> float:
        return self.ended_s - self.began_s

    @property
    def single(self) -> bool:
        return float(np.median(self.shares)) >= SHARE

    @property
    def level(self) -> float:
        return float(np.median(self.levels))

    @property
    def flat(self) -> bool:
        edges = slice(2, -3) if len(self.levels) > 6 else slice(1, -1)
        levels, pitches = self.levels[edges], self.pitches[edges]
        return not levels or (
            max(levels) - min(levels) <= FLAT_DB
            and max(pitches) - min(pitches) <= CADENCE_STEADY_HZ
        )


def in_progress_band(hz: float) -> bool:
    return PROGRESS_HZ[0] <= hz <= PROGRESS_HZ[1]


def is_sit(past: Sequence[ToneSegment]) -> bool:
    """Detect the three rising tones of E.180."""
    runs = list(past)[-3:]
    if len(runs) < 3:
        return False
    near = all(b.began_s - a.ended_s < 0.12 for a, b in itertools.pairwise(runs))
    return near and all(
        low <= run.hz <= high and SIT_S[0] <= run.seconds <= SIT_S[1]
        for run, (low, high) in zip(runs, SIT_HZ, strict=True)
    )


def is_cng(past: Sequence[ToneSegment]) -> bool:
    """Detect a fax calling tone: 1100 Hz for 0.5 s each 3.5 s (T.30)."""
    runs = list(past)[-2:]
    return (
        len(runs) == 2
        and all(abs(run.hz - 1100.0) <= 40.0 and 0.4 <= run.seconds <= 0.65 for run in runs)
        and 2.5 <= runs[1].began_s - runs[0].ended_s <= 3.6
    )


def busy_kind(past: Sequence[ToneSegment]) -> ToneKind | None:
    runs = [run for run in past if in_progress_band(run.hz)][-3:]
    if len(runs) < 3 or runs[-1] is not past[-1]:
        return None
    on = [run.seconds for run in runs]
    off = [b.began_s - a.ended_s for a, b in itertools.pairwise(runs)]
    if max(on) - min(on) > 0.06 or max(off) - min(off) > 0.06:
        return None
    period = on[-1] + off[-1]
    if not (0.1 <= on[-1] <= 0.8 and 0.1 <= off[-1] <= 0.8 and 0.3 < period <= 1.3):
        return None
    if not 0.4 <= on[-1] / off[-1] <= 2.5:
        return None
    return ToneKind.CONGESTION if period < 0.6 else ToneKind.BUSY


def is_pair(past: Sequence[ToneSegment]) -> bool:
    """Detect the British and Australian double ring: 0.4 s, pause 0.2 s, 0.4 s."""
    runs = list(past)[-2:]
    return (
        len(runs) == 2
        and abs(runs[0].seconds - runs[1].seconds) < 0.08
        and 0.1 <= runs[1].began_s - runs[0].ended_s <= 0.3
    )


@dataclass(frozen=True, slots=True)
class SpectrumFrame:
    at_s: float
    """Its end, seconds of sound since the beginning."""
    level_dbfs: float
    """Root mean square of these 10 ms."""
    hz: float
    """Frequency of the strongest peak of the last 40 ms."""
    share: float
    """Share of the band's power in this peak: 1 = a pure tone."""
    second_hz: float
    """The next strongest peak."""
    pair: float
    """Share of both peaks: 1 = one tone, or two."""


class Spectrum:
    """Short-time spectrum in bins of 25 Hz at any sample rate (pure)."""

    def __init__(self, rate_hz: int = 8000) -> None:
        if rate_hz not in RATES_HZ:
            raise ValueError(f"rate_hz={rate_hz}: {', '.join(map(str, RATES_HZ))}")
        self._hop = round(rate_hz * HOP_S)
        self._size = round(rate_hz * WINDOW_S)
        self._window = np.hanning(self._size + 1)[:-1]
        self._first = round(LOW_HZ / BIN_HZ)
        self._last = round(HIGH_HZ / BIN_HZ)
        self._held: NDArray[np.float64] = np.zeros(self._size - self._hop)
        self._count = 0

    def push(self, samples: NDArray[np.int16]) -> list[SpectrumFrame]:
        """Take linear samples, shape [n]; return a frame a complete 10 ms."""
        sound = np.concatenate([self._held, samples.astype(np.float64) / 32768.0])
        hops = (len(sound) - (self._size - self._hop)) // self._hop
        if hops <= 0:
            self._held = sound
            return []
        self._held = sound[hops * self._hop :]
        frames = np.lib.stride_tricks.sliding_window_view(sound, self._size)[:: self._hop][:hops]
        power = np.abs(np.fft.rfft(frames * self._window, axis=1)) ** 2
        levels = np.mean(frames[:, -self._hop :] ** 2, axis=1)
        return [self._moment(row, float(level)) for row, level in zip(power, levels, strict=True)]

    def _moment(self, power: NDArray[np.float64], level: float) -> SpectrumFrame:
        self._count += 1
        at_s = self._count * HOP_S
        dbfs = max(SILENCE_DBFS, 10 * float(np.log10(level))) if level > 0 else SILENCE_DBFS
        band = power[self._first : self._last + 1].copy()
        total = float(band.sum())
        if total <= 1e-9:
            return SpectrumFrame(at_s, dbfs, 0.0, 0.0, 0.0, 0.0)
        hz, strongest = self._take_peak(power, band)
        second_hz, second = self._take_peak(power, band)
        share = strongest / total
        return SpectrumFrame(at_s, dbfs, hz, share, second_hz, share + second / total)

    def _take_peak(
        self, power: NDArray[np.float64], band: NDArray[np.float64]
    ) -> tuple[float, float]:
        peak = int(np.argmax(band))
        low, high = max(0, peak - LOBE), peak + LOBE + 1
        own = float(band[low:high].sum())
        band[low:high] = 0.0
        where = peak + self._first
        # The parabola through the logarithms of three bins finds a tone within some Hz.
        left, mid, right = (float(np.log(power[where + step] + 1e-30)) for step in (-1, 0, 1))
        bend = left - 2 * mid + right
        shift = 0.5 * (left - right) / bend if bend < 0 else 0.0
        return (where + min(max(shift, -0.5), 0.5)) * BIN_HZ, own


__all__ = ["Tone", "ToneDetector", "ToneKind"]


@dataclass(frozen=True, slots=True)
class Tone:
    kind: ToneKind
    at_s: float
    """Time of recognition, seconds of sound since the beginning."""
    began_s: float
    """Begin of the tone, or of a cadence's last part."""
    duration_s: float
    """Its length, so far where it still sounds."""
    hz: float


class ToneDetector:
    def __init__(self, rate_hz: int = 8000) -> None:
        self._spectrum = Spectrum(rate_hz)
        self._run: ToneSegment | None = None
        self._missed = 0
        self._past: deque[ToneSegment] = deque(maxlen=12)
        self._pending: ToneSegment | None = None
        """A beep that waits for the quiet after it."""
        self._told_cadence: ToneKind | None = None
        self._sound_s = 0.0
        """Sound other than tones, lately: what a beep follows."""
        self._now = 0.0

    @property
    def sounding(self) -> bool:
        """True while a tone sounds or may be about to be recognised."""
        return self._run is not None and self._run.seconds >= 0.05

    def push(self, samples: NDArray[np.int16]) -> list[Tone]:
        return self.follow(self._spectrum.push(samples))

    def follow(self, moments: list[SpectrumFrame]) -> list[Tone]:
        told: list[Tone] = []
        for moment in moments:
            self._now = moment.at_s
            told += self._step(moment)
        return told

    def _step(self, moment: SpectrumFrame) -> list[Tone]:
        told: list[Tone] = []
        tonal = moment.level_dbfs >= TONE_DBFS and (moment.share >= SHARE or moment.pair >= PAIR)
        run = self._run
        if run is not None and tonal and self._continues(run, moment):
            run.ended_s = moment.at_s
            run.levels.append(moment.level_dbfs)
            run.pitches.append(_pitch(moment, run.hz))
            run.shares.append(moment.share)
            # A slow mean: the first moments, half before the tone, are the least exact.
            run.hz += (run.pitches[-1] - run.hz) / min(len(run.levels), 10)
            self._missed = 0
            told += self._while_it_sounds(run)
        elif run is not None and self._missed + 1 < BREAK_HOPS:
            self._missed += 1
        else:
            if run is not None:
                self._run = None
                told += self._closed(run)
            if tonal:
                began = moment.at_s - HOP_S
                self._run = ToneSegment(
                    began,
                    moment.hz,
                    moment.at_s,
                    [moment.level_dbfs],
                    [moment.hz],
                    [moment.share],
                    min(moment.hz, moment.second_hz),
                )
                self._missed = 0
        if not tonal and moment.level_dbfs > TONE_DBFS:
            self._sound_s = min(2.0, self._sound_s + HOP_S)
        else:
            self._sound_s = max(0.0, self._sound_s - HOP_S / 3)
        told += self._while_pending(moment)
        told += self._after_quiet()
        return told

    def _continues(self, run: ToneSegment, moment: SpectrumFrame) -> bool:
        return abs(_pitch(moment, run.hz) - run.hz) <= STEADY_HZ or (
            # Two tones that beat, such as 440 and 480 Hz: the stronger changes.
            in_progress_band(run.hz) and in_progress_band(moment.hz) and moment.pair >= PAIR
        )

    # --- tones that are known while they sound

    def _while_it_sounds(self, run: ToneSegment) -> list[Tone]:
        if run.told:
            return []
        if abs(run.hz - 2100.0) <= 25.0 and run.seconds >= 1.0:
            return [self._report(ToneKind.FAX_CED, run)]
        if in_progress_band(run.hz) and run.seconds >= DIAL_S:
            return [self._report(ToneKind.DIAL, run)]
        return []

    # --- tones that are known by their end, or by those before

    def _closed(self, run: ToneSegment) -> list[Tone]:
        if run.seconds < 0.05:
            return []
        earlier = self._past[-1] if self._past else None
        self._past.append(run)
        if run.told:
            return []
        if is_sit(self._past):
            self._pending = None
            return [self._report(ToneKind.SIT, run)]
        if is_cng(self._past):
            self._pending = None
            return [self._report(ToneKind.FAX_CNG, run)]
        kind = busy_kind(self._past)
        if kind is not None and kind is not self._told_cadence:
            self._told_cadence = kind
            self._pending = None
            return [self._report(kind, run)]
        self._pending = self._beep(run, earlier)
        return []

    def _after_quiet(self) -> list[Tone]:
        """Ringing: 0.3 to 2.3 s of a low tone, and more than 1.5 s without one."""
        if not self._past or self._run is not None:
            return []
        run = self._past[-1]
        quiet = self._now - run.ended_s
        if run.told or not in_progress_band(run.hz) or not 1.5 <= quiet <= 1.6:
            return []
        if not 0.3 <= run.seconds <= 2.5 or self._told_cadence is not None:
            return []
        if run.seconds < 0.7 and not is_pair(self._past):
            return []
        return [self._report(ToneKind.RINGBACK, run)]

    # --- a beep

    def _beep(self, run: ToneSegment, earlier: ToneSegment | None) -> ToneSegment | None:
        if not (BEEP_HZ[0] <= run.hz <= BEEP_HZ[1] and BEEP_S[0] <= run.seconds <= BEEP_S[1]):
            return None
        if not run.flat:
            return None
        if not run.single and (run.seconds < BEEP_PAIR_S or run.lowest_hz < BEEP_HZ[0]):
            return None  # two overtones of a voice
        if earlier is not None and run.began_s - earlier.ended_s < BEEP_APART_S:
            same = abs(earlier.hz - run.hz) <= 2 * STEADY_HZ
            if not same:
                return None
        if in_progress_band(run.hz) and self._sound_s < 0.2:
            return None  # it rings or is busy; a beep follows a greeting
        return run

    def _while_pending(self, moment: SpectrumFrame) -> list[Tone]:
        run = self._pending
        if run is None:
            return []
        quiet = moment.at_s - run.ended_s
        if self._run is not None and self._run.seconds >= 0.05:
            self._pending = None  # another tone: of the same pitch it is a beep of its own
            return []
        # The window still holds the tone's end for a while.
        if quiet > 0.05 and moment.level_dbfs > max(TONE_DBFS, run.level - 6.0):
            self._pending = None
            return []
        if quiet < BEEP_QUIET_S:
            return []
        self._pending = None
        return [self._report(ToneKind.BEEP, run)]

    def _report(self, kind: ToneKind, run: ToneSegment) -> Tone:
        run.told = True
        return Tone(kind, self._now, run.began_s, run.seconds, run.hz)


def _pitch(moment: SpectrumFrame, like: float) -> float:
    nearer = abs(moment.second_hz - like) < abs(moment.hz - like)
    return moment.second_hz if nearer and moment.share < SHARE else moment.hz
