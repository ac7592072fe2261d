"""What tones mean by their pitch and rhythm (pure).

Frequencies and cadences are those of ITU-T E.180 and its supplement 2 (one or two tones of 350 to
620 Hz; the period tells which), the special information tone of E.180, fax tones of T.30.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

SHARE: Final = 0.85
"""A tone has so much of the power: 7.5 dB above the noise."""
FLAT_DB: Final = 4.0
"""A beep's level stays within this; a bell, a plucked string and a voice do not."""
STEADY_HZ: Final = 8.0
"""A beep's pitch stays within this; that of a hummed sound does not."""
PROGRESS_HZ: Final = (330.0, 640.0)
SIT_HZ: Final = ((880.0, 1020.0), (1330.0, 1470.0), (1700.0, 1850.0))
SIT_S: Final = (0.18, 0.6)


class ToneKind(StrEnum):
    """What a tone means."""

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
class ToneRun:
    """A tone that sounds, or has sounded."""

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
        """Its length so far."""
        return self.ended_s - self.began_s

    @property
    def single(self) -> bool:
        """Whether it is one tone, not two."""
        return float(np.median(self.shares)) >= SHARE

    @property
    def level(self) -> float:
        """Decibels of full scale."""
        return float(np.median(self.levels))

    @property
    def flat(self) -> bool:
        """Whether it keeps its level and its pitch, apart from its edges."""
        edges = slice(2, -3) if len(self.levels) > 6 else slice(1, -1)
        levels, pitches = self.levels[edges], self.pitches[edges]
        return not levels or (
            max(levels) - min(levels) <= FLAT_DB and max(pitches) - min(pitches) <= STEADY_HZ
        )


def in_progress_band(hz: float) -> bool:
    """Whether a tone is as low as those of ringing, busy and dialling."""
    return PROGRESS_HZ[0] <= hz <= PROGRESS_HZ[1]


def is_sit(past: Sequence[ToneRun]) -> bool:
    """Whether the last three are the rising tones of E.180."""
    runs = list(past)[-3:]
    if len(runs) < 3:
        return False
    near = all(b.began_s - a.ended_s < 0.12 for a, b in itertools.pairwise(runs))
    return near and all(
        low <= run.hz <= high and SIT_S[0] <= run.seconds <= SIT_S[1]
        for run, (low, high) in zip(runs, SIT_HZ, strict=True)
    )


def is_cng(past: Sequence[ToneRun]) -> bool:
    """Whether the last two are a fax machine's: 1100 Hz for 0.5 s each 3.5 s (T.30)."""
    runs = list(past)[-2:]
    return (
        len(runs) == 2
        and all(abs(run.hz - 1100.0) <= 40.0 and 0.4 <= run.seconds <= 0.65 for run in runs)
        and 2.5 <= runs[1].began_s - runs[0].ended_s <= 3.6
    )


def busy_kind(past: Sequence[ToneRun]) -> ToneKind | None:
    """Busy or congestion: three parts of one length, the pauses as long."""
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


def is_pair(past: Sequence[ToneRun]) -> bool:
    """Two short ones, as it rings in Britain and Australia: 0.4 s, 0.2 s of pause, 0.4 s."""
    runs = list(past)[-2:]
    return (
        len(runs) == 2
        and abs(runs[0].seconds - runs[1].seconds) < 0.08
        and 0.1 <= runs[1].began_s - runs[0].ended_s <= 0.3
    )
