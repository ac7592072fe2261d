"""Tones on the line: ringing, busy, out of order, fax, and an answering machine's beep (pure).

What a run of tones means by its rhythm is in `cadence`; here the tones are found in the sound, and
a beep is told from music and voices.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from qwen3tts_phone import cadence
from qwen3tts_phone.cadence import SHARE, ToneKind, ToneRun, in_progress_band
from qwen3tts_phone.spectrum import HOP_S, Moment, Spectrum

__all__ = ["Tone", "ToneDetector", "ToneKind"]


@dataclass(frozen=True, slots=True)
class Tone:
    """A tone was recognised."""

    kind: ToneKind
    at_s: float
    """When that was known, seconds of sound since the beginning."""
    began_s: float
    """When the tone (of a cadence: its last part) began."""
    duration_s: float
    """How long that lasted; of one that still sounds, so far."""
    hz: float


TONE_DBFS: Final = -45.0
PAIR: Final = 0.92
STEADY_HZ: Final = 14.0
"""A tone wanders less than this: neighbouring notes of music and voices do not."""
BREAK_HOPS: Final = 2
"""So many moments of something else end a tone."""
BEEP_HZ: Final = (380.0, 2100.0)
BEEP_S: Final = (0.065, 2.0)
"""As measured; the window takes up to 15 ms off."""
BEEP_PAIR_S: Final = 0.15
"""A beep of two tones at once is at least so long: two overtones of a hum are shorter."""
BEEP_QUIET_S: Final = 0.25
"""A beep is followed by so much quiet, 6 dB below it or more: music goes on."""
BEEP_APART_S: Final = 0.15
"""A beep does not follow another tone as closely as this: a melody does."""
DIAL_S: Final = 3.0


class ToneDetector:
    """Samples in, tones out, each told once."""

    def __init__(self, rate_hz: int = 8000) -> None:
        self._spectrum = Spectrum(rate_hz)
        self._run: ToneRun | None = None
        self._missed = 0
        self._past: deque[ToneRun] = deque(maxlen=12)
        self._pending: ToneRun | None = None
        """A beep that waits for the quiet after it."""
        self._told_cadence: ToneKind | None = None
        self._sound_s = 0.0
        """Sound other than tones, lately: what a beep follows."""
        self._now = 0.0

    @property
    def sounding(self) -> bool:
        """Whether a tone sounds now, or has for so short a time that it is not clear yet."""
        return self._run is not None and self._run.seconds >= 0.05

    def push(self, samples: NDArray[np.int16]) -> list[Tone]:
        """Take linear samples, shape [n], any n."""
        return self.follow(self._spectrum.push(samples))

    def follow(self, moments: list[Moment]) -> list[Tone]:
        """The same, from a spectrum that another has as well."""
        told: list[Tone] = []
        for moment in moments:
            self._now = moment.at_s
            told += self._step(moment)
        return told

    def _step(self, moment: Moment) -> list[Tone]:
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
                self._run = ToneRun(
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

    def _continues(self, run: ToneRun, moment: Moment) -> bool:
        return abs(_pitch(moment, run.hz) - run.hz) <= STEADY_HZ or (
            # Two tones that beat, such as 440 and 480 Hz: the stronger changes.
            in_progress_band(run.hz) and in_progress_band(moment.hz) and moment.pair >= PAIR
        )

    # --- tones that are known while they sound

    def _while_it_sounds(self, run: ToneRun) -> list[Tone]:
        if run.told:
            return []
        if abs(run.hz - 2100.0) <= 25.0 and run.seconds >= 1.0:
            return [self._tell(ToneKind.FAX_CED, run)]
        if in_progress_band(run.hz) and run.seconds >= DIAL_S:
            return [self._tell(ToneKind.DIAL, run)]
        return []

    # --- tones that are known by their end, or by those before

    def _closed(self, run: ToneRun) -> list[Tone]:
        if run.seconds < 0.05:
            return []
        earlier = self._past[-1] if self._past else None
        self._past.append(run)
        if run.told:
            return []
        if cadence.is_sit(self._past):
            self._pending = None
            return [self._tell(ToneKind.SIT, run)]
        if cadence.is_cng(self._past):
            self._pending = None
            return [self._tell(ToneKind.FAX_CNG, run)]
        kind = cadence.busy_kind(self._past)
        if kind is not None and kind is not self._told_cadence:
            self._told_cadence = kind
            self._pending = None
            return [self._tell(kind, run)]
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
        if run.seconds < 0.7 and not cadence.is_pair(self._past):
            return []
        return [self._tell(ToneKind.RINGBACK, run)]

    # --- a beep

    def _beep(self, run: ToneRun, earlier: ToneRun | None) -> ToneRun | None:
        """The beep that may have ended with this run."""
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

    def _while_pending(self, moment: Moment) -> list[Tone]:
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
        return [self._tell(ToneKind.BEEP, run)]

    def _tell(self, kind: ToneKind, run: ToneRun) -> Tone:
        run.told = True
        return Tone(kind, self._now, run.began_s, run.seconds, run.hz)


def _pitch(moment: Moment, like: float) -> float:
    """The frequency of the tone that is followed: of two, the one that is nearer."""
    nearer = abs(moment.second_hz - like) < abs(moment.hz - like)
    return moment.second_hz if nearer and moment.share < SHARE else moment.hz
