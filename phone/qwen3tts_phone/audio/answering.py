"""Answering machine detection by the greeting's length and pauses (pure).

A short greeting and then silence is a person; long speech, or a beep, is a machine. A decision may
be corrected later. Thresholds are tuned with benchmarks/answering_machine.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from qwen3tts_phone.audio.frames import HeardFrame
from qwen3tts_phone.audio.tones import HOP_S, Spectrum, SpectrumFrame, Tone, ToneDetector, ToneKind
from qwen3tts_settings.constraints import bounded, check_fields

FLOOR_S: Final = 3.0
"""Window of the noise floor: the quietest moment in it is the noise of the line."""
ABOVE_DB: Final = 9.0
"""Speech is louder than the noise floor by this."""
MIN_SPEECH_DBFS: Final = -48.0
"""Lowest level of speech, however quiet the line."""
MAX_FLOOR_DBFS: Final = -30.0
"""Highest noise floor: above it the sound is speech without pauses."""
BELOW_PEAK_DB: Final = 22.0
"""Sound below the peak of the voice by this is the room behind it."""
PEAK_FALL_DB: Final = 0.01
"""Decay of the peak in 10 ms."""
SMOOTH: Final = 5
"""Moments of 10 ms over which loudness is averaged."""
BRIDGE_S: Final = 0.25
"""A pause shorter than this is part of the speech: a stop consonant, a breath."""
MIN_BURST_S: Final = 0.08
"""Shortest sound that counts; the click of the answer is shorter."""
MIN_BURST_IN_SPEECH_S: Final = 0.03
"""The same within a greeting: in noise only its loudest parts are above the floor."""
MIN_GREETING_S: Final = 0.14
"""Shortest greeting; less speech is a noise."""


@dataclass(frozen=True, slots=True)
class AnsweringSettings:
    """Thresholds in seconds of sound after the answer."""

    silence_s: float = bounded(0.5, default=3.5)
    """Time without speech that decides ``silence``."""
    human_speech_s: float = bounded(0.2, default=2.5)
    """Longest greeting of a person..."""
    human_quiet_s: float = bounded(0.2, 5.0, default=1.1)
    """...followed by this much quiet."""
    machine_speech_s: float = bounded(0.2, 60.0, default=3.0)
    """Speech of this length without such a pause is a machine's."""
    most_s: float = bounded(high=60.0, default=8.0)
    """Latest time of a decision."""
    message_quiet_s: float = bounded(0.5, 30.0, default=2.5)
    """A machine without a beep is taken to record after this much quiet."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.human_speech_s > self.machine_speech_s:
            raise ValueError("human_speech_s must not be above machine_speech_s")
        if self.machine_speech_s > self.most_s:
            raise ValueError("most_s must not be below machine_speech_s")
        if self.silence_s > self.most_s:
            raise ValueError("silence_s must not be above most_s")


AnswererKind = Literal["human", "machine", "silence"]


@dataclass(frozen=True, slots=True)
class Answerer:
    kind: AnswererKind
    at_s: float
    """Time of the decision, seconds of sound after the answer."""
    words: str
    """Reason of the decision."""


class VoiceGate:
    """Speech gate: louder than the line's own noise, and no tone."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=SMOOTH)
        # The least of each 100 ms, of 3 s.
        self._lows: deque[float] = deque(maxlen=round(FLOOR_S / 0.1))
        self._low, self._in_low = 0.0, 0
        self._peak = MIN_SPEECH_DBFS

    def push(self, moment: SpectrumFrame) -> bool:
        self._recent.append(10 ** (moment.level_dbfs / 10))
        level = 10 * float(np.log10(sum(self._recent) / len(self._recent)))
        self._low = min(self._low, level) if self._in_low else level
        self._in_low = (self._in_low + 1) % 10
        if self._in_low == 0:
            self._lows.append(self._low)
        floor = min(*self._lows, self._low, MAX_FLOOR_DBFS)
        self._peak = max(self._peak - PEAK_FALL_DB, level)
        return level >= max(floor + ABOVE_DB, MIN_SPEECH_DBFS, self._peak - BELOW_PEAK_DB)


class AnsweringMachineDetector:
    """Detector over the far end's samples, from the answer on."""

    def __init__(self, rate_hz: int = 8000, settings: AnsweringSettings | None = None) -> None:
        self.settings = settings or AnsweringSettings()
        self.answerer: Answerer | None = None
        """Latest decision; None = not decided."""
        self.beep: Tone | None = None
        """The last beep that was heard."""
        self.ready_s: float | None = None
        """Time at which a machine began to record, in seconds; None = not yet, or no machine."""
        self._spectrum = Spectrum(rate_hz)
        self._tones = ToneDetector(rate_hz)
        self._gate = VoiceGate()
        self._now = 0.0
        self._speech_s = 0.0
        """Length of the greeting, short pauses included."""
        self._burst_s = 0.0
        """Length of the current sound."""
        self._quiet_s = 0.0
        """Time since the last sound."""

    @property
    def heard_s(self) -> float:
        return self._now

    def push(self, samples: NDArray[np.int16]) -> Answerer | None:
        """Take linear samples, shape [n]; return a new or corrected decision."""
        told = None
        for moment in self._spectrum.push(samples):
            told = self._step(moment) or told
        return told

    def _step(self, moment: SpectrumFrame) -> Answerer | None:
        self._now = moment.at_s
        tones = self._tones.follow([moment])
        voice = self._gate.push(moment) and not self._tones.sounding
        self._count(voice)
        known = None
        for tone in tones:
            if tone.kind in (ToneKind.FAX_CED, ToneKind.SIT):
                known = known or self._decide("machine", f"a tone ({tone.kind})")
            if tone.kind is ToneKind.BEEP:
                self.beep = tone
                known = known or self._decide("machine", "a beep")
                if self._is_machine:
                    self.ready_s = self._now
        waited = self._speech_s > 0 and self._quiet_s >= self.settings.message_quiet_s
        if waited and self._is_machine and self.ready_s is None:
            self.ready_s = self._now
        return known or self._judge()

    @property
    def _is_machine(self) -> bool:
        return self.answerer is not None and self.answerer.kind == "machine"

    def _count(self, voice: bool) -> None:
        least_s = MIN_BURST_IN_SPEECH_S if self._speech_s else MIN_BURST_S
        if not voice:
            if self._burst_s < least_s:
                self._quiet_s += self._burst_s
            self._burst_s = 0.0
            self._quiet_s += HOP_S
            return
        self._burst_s += HOP_S
        if self._burst_s < least_s - 1e-9:
            return
        if self._quiet_s:  # it begins, or goes on after a pause
            bridged = self._speech_s > 0 and self._quiet_s < BRIDGE_S
            self._speech_s += self._burst_s + (self._quiet_s if bridged else 0.0)
            self._quiet_s = 0.0
        else:
            self._speech_s += HOP_S

    def _judge(self) -> Answerer | None:
        settings = self.settings
        if self.answerer is not None and self.answerer.kind != "silence":
            return None
        if not self._speech_s:
            if self._now >= settings.silence_s and self.answerer is None:
                return self._decide("silence", f"nothing was said for {settings.silence_s:g} s")
            return None
        if self._speech_s >= settings.machine_speech_s:
            return self._decide("machine", f"{self._speech_s:.1f} s of speech in one go")
        if self._quiet_s >= settings.human_quiet_s:
            if self._speech_s < MIN_GREETING_S:
                self._speech_s = 0.0
                return None
            if self._speech_s <= settings.human_speech_s:
                return self._decide("human", f"{self._speech_s:.1f} s of speech, then quiet")
            return self._decide("machine", f"{self._speech_s:.1f} s of speech, then quiet")
        if self._now >= settings.most_s:
            return self._decide("machine", "sound without an end")
        return None

    def _decide(self, kind: AnswererKind, words: str) -> Answerer | None:
        if self.answerer is not None and kind in (self.answerer.kind, "silence"):
            return None
        self.answerer = Answerer(kind, self._now, words)
        return self.answerer


@dataclass(frozen=True, slots=True)
class MachineReady:
    at_s: float
    """Seconds of sound after the answer."""
    beeped: bool
    """False: inferred from a long quiet."""


async def who_answered(
    frames: AsyncIterable[HeardFrame], settings: AnsweringSettings | None = None
) -> AsyncIterator[Answerer | MachineReady]:
    """Yield decisions, and the moment at which a machine records.

    Time is counted in samples: use the gapless ``call.audio(steady=True)``. A change of the sample
    rate restarts detection and keeps the decision.
    """
    detector: AnsweringMachineDetector | None = None
    rate_hz, begun_s, ready = 0, 0.0, False
    async for frame in frames:
        if detector is None or frame.rate_hz != rate_hz:
            known = detector.answerer if detector is not None else None
            begun_s += detector.heard_s if detector is not None else 0.0
            rate_hz = frame.rate_hz
            detector = AnsweringMachineDetector(rate_hz, settings)
            detector.answerer = known
        answerer = detector.push(frame.samples)
        if answerer is not None:
            yield replace(answerer, at_s=begun_s + answerer.at_s)
        if detector.ready_s is not None and not ready:
            ready = True
            yield MachineReady(begun_s + detector.ready_s, detector.beep is not None)
