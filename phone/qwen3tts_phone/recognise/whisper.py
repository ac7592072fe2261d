"""Whisper as a recogniser: turn by turn, in a process of its own, for all calls."""

from __future__ import annotations

import weakref

from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_phone.recognise.base import PartialTaker, Samples, Transcript
from qwen3tts_phone.recognise.by_turns import TurnRecognition, TurnRules
from qwen3tts_phone.recognise.desk import Desk
from qwen3tts_phone.recognise.errors import RecognitionFailed
from qwen3tts_phone.recognise.guards import believed, silent
from qwen3tts_phone.recognise.whisper_model import RATE_HZ, WINDOW_S
from qwen3tts_phone.recognise.whisper_process import WhisperProcess
from qwen3tts_phone.recognise.whisper_settings import WhisperSettings

PIECE_S = WINDOW_S - 2.0
"""A turn longer than this is written down piece by piece while the caller speaks on."""


class WhisperRecogniser:
    """Writes down turns with a Whisper model on this machine; needs the extra ``stt``.

    >>> recogniser = WhisperRecogniser(WhisperSettings("openai/whisper-small", languages=("en",)))
    >>> await recogniser.warm()

    The process is started by `warm` or with the first call, and replaced when it dies. It ends
    with this one.
    """

    rate_hz = RATE_HZ
    """Hertz; of every Whisper model."""

    def __init__(
        self, settings: WhisperSettings | None = None, *, clock: Clock | None = None
    ) -> None:
        """Nothing is loaded yet."""
        self.settings = settings or WhisperSettings()
        self._rules = TurnRules(
            RATE_HZ,
            early=self.settings.early,
            piece_s=PIECE_S,
            timeout_s=self.settings.timeout_s,
            late=self._late,
        )
        self._desk = Desk(
            lambda: WhisperProcess.start(self.settings),
            clock or LoopClock(),
            most_waiting=self.settings.most_waiting,
        )
        self._open: weakref.WeakSet[TurnRecognition] = weakref.WeakSet()
        self._closed = False

    async def warm(self) -> None:
        """Load the model; takes seconds, or minutes where it is fetched.

        Raises:
            RecogniserUnavailable: the packages, the model or the device are not there.
            RecognitionFailed: the process ended, or was not ready in time.
        """
        await self._desk.ready()

    async def open(self, on_partial: PartialTaker | None = None) -> TurnRecognition:
        """Begin to recognise one call; loads the model in the background if it is not loaded."""
        if self._closed:
            raise RecognitionFailed("The recogniser is closed.")
        self._desk.begin()
        recognition = TurnRecognition(self._hear, self._rules, on_partial)
        self._open.add(recognition)
        return recognition

    async def close(self) -> None:
        """End the process; calls that are still open can recognise nothing more."""
        self._closed = True
        for recognition in list(self._open):
            await recognition.close()
        await self._desk.close()

    def _late(self) -> str:
        if self._desk.loading:
            return "The model is still being loaded: await warm() before the first call."
        return "Name a smaller model, use a GPU, or allow more time (timeout_s)."

    async def _hear(self, samples: Samples) -> Transcript:
        if silent(samples, RATE_HZ):
            return Transcript("")
        return believed(await self._desk.ask(samples), len(samples) / RATE_HZ)
