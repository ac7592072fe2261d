"""Pause of the open turn of a call: rules, the melody, and the turn detector's opinion."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.detection.adaptive_pause import AdaptivePause, PauseCues
from qwen3tts_phone.detection.endpointing import Endpointer, TurnDetector, TurnSoFar
from qwen3tts_phone.detection.events import ListenEvent, OnsetHeard, SpeechResumed, TurnEnded
from qwen3tts_phone.detection.prosody import READ_S, LastSound, last_sound
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.detection.turn_transcriber import TurnTranscriber
from qwen3tts_phone.errors import traceback_without_message

logger = logging.getLogger(__name__)

MAX_ASKED_S: Final = 30.0
"""Longest audio that a turn detector receives."""
CUT_S: Final = 1.0
"""Speech that begins so soon after a turn's end is the same turn's, had its pause been longer."""
_EPSILON: Final = 1e-6


class PauseControl:
    """Control of the pause of one call.

    Args:
        settings: limits.
        turns: its pause is set.
        hearer: has the turn's audio and text.
        detector: asked once in each pause; None = rules alone.
        clock: of the call.
        handle: receives the events of a turn that ends by a decision in its pause.
    """

    def __init__(
        self,
        settings: ListenSettings,
        turns: Endpointer,
        hearer: TurnTranscriber,
        detector: TurnDetector | None,
        clock: Clock,
        handle: Callable[[list[ListenEvent]], None],
    ) -> None:
        self.rules = AdaptivePause(settings)
        self._settings = settings
        self._turns = turns
        self._hearer = hearer
        self._detector = detector
        self._thresholds: tuple[float, float] | None = getattr(detector, "thresholds", None)
        self._clock = clock
        self._handle = handle
        self._after_s = min(settings.detector_ms, settings.notice_ms) / 1000
        self._read_at: float | None = None
        """Last voiced sample before the pause that was read."""
        self._text: str | None = None
        self._sound: LastSound | None = None
        self._probability: float | None = None
        self._waits = False
        """True if the detector has set this pause alone."""
        self._ended: TurnEnded | None = None
        self._asking: asyncio.Task[None] | None = None
        self._detector_failed = False

    def progress(self, agent_speaks: bool) -> None:
        """Read the pause of an open turn once, when it has lasted ``detector_ms``."""
        turns = self._turns
        if agent_speaks:
            self._ended = None  # what the caller says next is another turn
        if not turns.speaking or turns.silence_s + _EPSILON < self._after_s:
            return
        if self._read_at == turns.ended_at:
            return
        self._read_at = turns.ended_at
        self._probability, self._waits = None, False  # of a gap shorter than notice_ms
        if self._settings.adaptive_pause:
            self._sound = last_sound(self._hearer.so_far(READ_S), self._hearer.rate_hz)
        self._ask()
        self._choose()

    def guessed(self, text: str) -> None:
        self._text = text
        self._choose()

    def note(self, event: ListenEvent) -> None:
        match event:
            case OnsetHeard(began_at=began_at):
                self._new_pause()
                ended, self._ended = self._ended, None
                if ended is not None and began_at - ended.ended_at < CUT_S:
                    self.rules.note_pause(began_at - ended.ended_at)
            case SpeechResumed():
                self._new_pause()
                self.rules.note_pause(self._turns.last_pause_s)
            case TurnEnded():
                self._new_pause()
                self._ended = event if event.why in ("pause", "detector") else None
            case _:
                pass

    def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    # --- inside

    def _new_pause(self) -> None:
        self.close()
        self._text = self._probability = self._sound = None
        self._read_at = None
        self._waits = False

    def _choose(self) -> None:
        if self._waits:
            return
        thresholds = self._thresholds or (0.0, 1.0)
        if self._settings.adaptive_pause:
            chosen = self.rules.choose(
                PauseCues(
                    text=self._text,
                    language=self._hearer.language,
                    words_expected=self._hearer.recognises,
                    speech_s=self._turns.speech_s,
                    sound=self._sound,
                    probability=self._probability,
                    thresholds=thresholds,
                )
            )
        else:
            chosen = self.rules.by_detector(self._probability, thresholds)
        self._turns.set_pause(chosen.pause_s, chosen.rule)
        self._handle(self._turns.due(self._clock.now()))

    # --- the turn detector

    def _ask(self) -> None:
        self.close()
        if self._detector is None:
            return
        so_far = TurnSoFar(
            self._hearer.so_far(MAX_ASKED_S),
            self._hearer.rate_hz,
            self._hearer.partial,
            self._turns.began_at,
            self._turns.ended_at,
            self._clock.now(),
        )
        self._asking = asyncio.create_task(self._asked(self._detector, so_far))

    async def _asked(self, detector: TurnDetector, so_far: TurnSoFar) -> None:
        try:
            answer = await detector.finished(so_far)
            finished = None if answer is None else float(answer)
            if finished is not None and not 0.0 <= finished <= 1.0:
                raise ValueError("no probability")
        # Broad: a program's own detector may raise anything; the rules decide then.
        except Exception as error:
            if not self._detector_failed:
                self._detector_failed = True
                logger.error(
                    "the turn detector failed; the pause decides (logged once a call)\n%s",
                    traceback_without_message(error),
                )
            return
        self._asking = None
        if finished is None or self._turns.ended_at != so_far.ended_at:
            return
        if self._thresholds is not None:
            self._probability = finished
            self._choose()
        elif finished >= 0.5:
            self._handle(self._turns.finish("detector", self._clock.now(), "detector"))
        else:
            self._turns.set_pause(self._settings.longest_pause_ms / 1000, "detector:wait")
            self._waits = True
