"""Frames of the caller in, decisions out (pure: time is an argument, nothing is opened).

    HeardFrame -> 8 kHz -> echo guard -> voice detector -> turn taking -> ListenEvent
    SentFrame  ----------------^

What is decided is decided with the piece of sound that decides it; nothing is held back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.resample import Resampler
from qwen3tts_phone.audio.frames import HeardFrame, SentFrame
from qwen3tts_phone.detection.echo import EchoGuard
from qwen3tts_phone.detection.endpointing import Endpointer
from qwen3tts_phone.detection.events import ListenEvent, WhyEnded
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.detection.vad import (
    RATE_HZ,
    SteadySoundDetector,
    VoiceActivityDetector,
    make_detector,
)

Samples = NDArray[np.int16]

SILENT_AFTER_S: Final = 0.1
"""A far end from which nothing has come for so long is silent: many send nothing in pauses."""
FAINT_DBFS: Final = -60.0
"""Below this is nobody."""
HYSTERESIS: Final = 0.15
"""Within a turn, speech may be so much less probable."""
TAIL_DB: Final = 22.0
"""Within a turn, what is so much fainter than its loudest is the end of a sound, the room or the
line: detectors go on for a tenth of a second after the last word."""
TAIL_FALL_DB_S: Final = 6.0
"""So fast the loudest is forgotten: people grow quieter."""
LOUD_PEAK: Final = 64
"""A frame of ours with a sample above this is heard by the caller."""


class SpeechDetectionCore:
    """One call's. Times are seconds of the clock that the frames' ``at`` is of.

    Args:
        settings: what counts as what.
        now: when it begins.
        detector: instead of the one that the settings name.

    Raises MissingDetector where the detector is not installed.
    """

    def __init__(
        self, settings: ListenSettings, now: float, detector: VoiceActivityDetector | None = None
    ) -> None:
        self.settings = settings
        self.turns = Endpointer(settings, now)
        self.guard = EchoGuard() if settings.echo_guard else None
        """None = not asked for."""
        self._detector = detector or make_detector(settings.detector)
        self._window = self._detector.window
        self._steadiness = SteadySoundDetector(self._window / RATE_HZ)
        self._resampler: Resampler | None = None
        self._held: Samples = np.zeros(0, np.int16)  # of a window that is not complete
        self._trusted = True  # whether all of it was heard, and not made up
        self._loudest = FAINT_DBFS
        self._last_at: float | None = None

    @property
    def speaking(self) -> bool:
        """Whether the caller's turn is open, pauses in it included."""
        return self.turns.speaking

    def agent_speaking(self, speaking: bool, now: float) -> None:
        """Whether the agent has something to say; what the caller says then cuts in."""
        self.turns.agent(speaking, now)

    def push(
        self, frame: HeardFrame, sent: Sequence[SentFrame] = (), now: float | None = None
    ) -> list[ListenEvent]:
        """Take a frame of the caller, and what we have sent since the last one.

        ``now``: when it is judged; None = when it arrived. A frame may hold any number of samples
        at any rate that the codecs have.
        """
        now = frame.at if now is None else now
        self._sent(sent)
        self._last_at = frame.at
        samples = self._at_8_khz(frame)
        if not len(samples):
            return []
        if self.guard is not None:
            samples = self.guard.push(samples, frame.at)
        self._trusted = self._trusted and not (frame.concealed or frame.noise)
        held = np.concatenate((self._held, samples)) if len(self._held) else samples
        count = len(held) // self._window
        self._held = held[count * self._window :]
        events: list[ListenEvent] = []
        for number in range(count):
            piece = held[number * self._window : (number + 1) * self._window]
            ends = frame.at - (len(held) - (number + 1) * self._window) / RATE_HZ
            voiced = self._voiced(piece)
            events += self.turns.piece(voiced, ends - self._window / RATE_HZ, ends, now)
        if count:
            self._trusted = not (len(self._held) and (frame.concealed or frame.noise))
        return events

    def tick(self, now: float, sent: Sequence[SentFrame] = ()) -> list[ListenEvent]:
        """Time has passed: a far end from which nothing comes is silent. Some times a second."""
        self._sent(sent)
        if self._last_at is not None and now - self._last_at < SILENT_AFTER_S:
            return []
        return self.turns.tick(now)

    def finish(self, why: WhyEnded, now: float) -> list[ListenEvent]:
        """The turn is over, because somebody else says so; nothing where none is open."""
        return self.turns.finish(why, now)

    def wait_longer(self) -> None:
        """The pause may last up to ``longest_pause_ms``: the caller has not finished."""
        self.turns.wait_longer()

    # --- inside

    def _sent(self, sent: Sequence[SentFrame]) -> None:
        for frame in sent:
            if len(frame.samples) and int(np.abs(frame.samples.astype(np.int32)).max()) > LOUD_PEAK:
                self.turns.agent_audible(frame.at)
            if self.guard is not None:
                self.guard.sent(frame)

    def _at_8_khz(self, frame: HeardFrame) -> Samples:
        if frame.rate_hz == RATE_HZ:
            self._resampler = None
            return frame.samples
        if self._resampler is None or self._resampler.from_hz != frame.rate_hz:
            self._resampler = Resampler(frame.rate_hz, RATE_HZ)
        return self._resampler.push(frame.samples)

    def _voiced(self, piece: Samples) -> bool:
        signal = piece.astype(np.float32)
        power = float(signal @ signal) / len(signal)
        dbfs = 10 * math.log10(power / 32768.0**2 + 1e-12)
        steady = self._steadiness.push(dbfs)
        probabilities = self._detector.push(piece)
        # A detector that is not asked in silence is late after it: its state is of what was before.
        if steady or not self._trusted or not probabilities:
            return False
        wanted = self.settings.threshold - (HYSTERESIS if self.turns.speaking else 0.0)
        if dbfs < FAINT_DBFS or probabilities[-1] < max(0.01, wanted):
            return False
        if self._is_tail(dbfs):
            return False
        return self.guard is None or not self.guard.may_be_ours(len(piece) / RATE_HZ)

    def _is_tail(self, dbfs: float) -> bool:
        """Whether it is too faint to belong to the turn that is open."""
        if not self.turns.speaking:
            self._loudest = FAINT_DBFS
            return False
        fall = TAIL_FALL_DB_S * self._window / RATE_HZ
        self._loudest = max(self._loudest - fall, dbfs)
        return dbfs < self._loudest - TAIL_DB
