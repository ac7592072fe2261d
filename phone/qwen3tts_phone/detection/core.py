"""Core of speech detection: frames in, events out (pure: time is an argument).

    HeardFrame -> 8 kHz -> echo guard -> VAD -> endpointer -> ListenEvent
    SentFrame  ----------------^

An event is returned with the piece of audio that decides it; nothing is held back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.resample import RateConverter
from qwen3tts_phone.audio.frames import HeardFrame, SentFrame
from qwen3tts_phone.detection.echo import EchoGuard
from qwen3tts_phone.detection.endpointing import Endpointer
from qwen3tts_phone.detection.events import ListenEvent, WhyEnded
from qwen3tts_phone.detection.noise_detector import with_suppression
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.detection.vad import (
    RATE_HZ,
    SteadySoundDetector,
    VoiceActivityDetector,
    make_detector,
)

Samples = NDArray[np.int16]

SILENT_AFTER_S: Final = 0.1
"""Time without frames after which the far end is silent: many send nothing in pauses."""
FAINT_DBFS: Final = -60.0
"""Level below which there is no speech."""
HYSTERESIS: Final = 0.15
"""Reduction of the threshold within a turn."""
TAIL_DB: Final = 22.0
"""Level below the turn's loudest sound that is the end of a sound, the room or the line: detectors
go on for 0.1 s after the last word.
"""
TAIL_FALL_DB_S: Final = 6.0
"""Decay of the loudest: people grow quieter."""
LOUD_PEAK: Final = 64
"""Peak above which a frame of ours is audible to the caller."""


class SpeechDetectionCore:
    """Core of one call; times are seconds of the clock of the frames' ``at``.

    ``detector`` replaces that of the settings. Raises MissingDetector.
    """

    def __init__(
        self, settings: ListenSettings, now: float, detector: VoiceActivityDetector | None = None
    ) -> None:
        self.settings = settings
        self.turns = Endpointer(settings, now)
        self.guard = EchoGuard() if settings.echo_guard else None
        """None = switched off."""
        self._detector = detector or with_suppression(make_detector(settings.detector), settings)
        self._window = self._detector.window
        self._steadiness = SteadySoundDetector(self._window / RATE_HZ)
        self._to_8_khz = RateConverter(RATE_HZ)
        self._held: Samples = np.zeros(0, np.int16)  # of a window that is not complete
        self._trusted = True  # whether none of it is concealed
        self._loudest = FAINT_DBFS
        self._last_at: float | None = None

    @property
    def speaking(self) -> bool:
        return self.turns.speaking

    @property
    def hears_echo(self) -> bool:
        """True if the agent's echo is known to be on the line."""
        return self.guard is not None and self.guard.canceller is not None

    def agent_speaking(self, speaking: bool, now: float) -> None:
        self.turns.agent(speaking, now)

    def push(
        self, frame: HeardFrame, sent: Sequence[SentFrame] = (), now: float | None = None
    ) -> list[ListenEvent]:
        """Take a frame of the caller, and the frames sent since the last one.

        ``now``: time of the decision; None = the frame's arrival.
        """
        now = frame.at if now is None else now
        self._sent(sent)
        self._last_at = frame.at
        samples = self._to_8_khz.push(frame.samples, frame.rate_hz)
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
        self._sent(sent)
        if self._last_at is not None and now - self._last_at < SILENT_AFTER_S:
            return []
        return self.turns.tick(now)

    def finish(self, why: WhyEnded, now: float) -> list[ListenEvent]:
        return self.turns.finish(why, now)

    # --- inside

    def _sent(self, sent: Sequence[SentFrame]) -> None:
        for frame in sent:
            if len(frame.samples) and int(np.abs(frame.samples.astype(np.int32)).max()) > LOUD_PEAK:
                self.turns.agent_audible(frame.at)
            if self.guard is not None:
                self.guard.sent(frame)

    def _voiced(self, piece: Samples) -> bool:
        signal = piece.astype(np.float32)
        power = float(signal @ signal) / len(signal)
        dbfs = 10 * math.log10(power / 32768.0**2 + 1e-12)
        steady = self._steadiness.push(dbfs)
        probabilities = self._detector.push(piece)
        # A detector that skips silence is late after it: its state is out of date.
        if steady or not self._trusted or not probabilities:
            return False
        wanted = self.settings.threshold - (HYSTERESIS if self.turns.speaking else 0.0)
        if dbfs < FAINT_DBFS or probabilities[-1] < max(0.01, wanted):
            return False
        if self._is_tail(dbfs):
            return False
        return self.guard is None or not self.guard.may_be_ours(len(piece) / RATE_HZ)

    def _is_tail(self, dbfs: float) -> bool:
        if not self.turns.speaking:
            self._loudest = FAINT_DBFS
            return False
        fall = TAIL_FALL_DB_S * self._window / RATE_HZ
        self._loudest = max(self._loudest - fall, dbfs)
        return dbfs < self._loudest - TAIL_DB
