"""Whisper, turn by turn, in one process for all calls."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from qwen3tts_agent.recognition.queue import RecognitionQueue
from qwen3tts_agent.recognition.settings import WhisperSettings
from qwen3tts_agent.recognition.turns import (
    OpenRecognitions,
    TurnRecognition,
    TurnRecognitionOptions,
)
from qwen3tts_agent.recognition.whisper_process import WhisperProcess, model_line
from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_phone.detection.recogniser import (
    PartialCallback,
    RecogniserReport,
    Samples,
    Transcript,
)
from qwen3tts_wire.whisper.guards import is_plausible, silent
from qwen3tts_wire.whisper.model import RATE_HZ

PIECE_S = 12.0
"""Longest turn that is recognised as a whole, not piece by piece while the caller speaks."""
PARTIAL_INTERVAL_S = 1.0
"""New speech before a partial text, where the model has nothing else to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhisperReport(RecogniserReport):
    """Model in use, and its speed here."""

    kind: str = "whisper"
    source: str
    """Origin of the model: ``folder``, ``hub's cache``, ``package NAME`` or ``hub``."""
    device: str
    dtype: str
    threads: int
    load_s: float
    """Seconds of loading, with the start of the process."""
    text: str = field(default="", repr=False)
    """Text recognised in the check."""

    @property
    def line(self) -> str:
        return model_line(
            {
                "model": self.model,
                "source": self.source,
                "languages": self.language.split(", ") if self.language else [],
                "dtype": self.dtype,
                "device": self.device,
            }
        )


class WhisperRecogniser:
    """Recogniser with a local Whisper model; needs the extra ``stt``.

    >>> recogniser = WhisperRecogniser(WhisperSettings("small", languages=("en", "de")))
    >>> await recogniser.warm()
    """

    rate_hz = RATE_HZ
    """Rate of every Whisper model, Hz."""

    def __init__(
        self, settings: WhisperSettings | None = None, *, clock: Clock | None = None
    ) -> None:
        self.settings = settings or WhisperSettings()
        self._rules = TurnRecognitionOptions(
            RATE_HZ,
            early=self.settings.early,
            piece_s=PIECE_S,
            every_s=PARTIAL_INTERVAL_S if self.settings.early else None,
            timeout_s=self.settings.timeout_s,
            late=self._late,
        )
        self._queue = RecognitionQueue(
            lambda: WhisperProcess.start(self.settings),
            clock or LoopClock(),
            most_waiting=self.settings.most_waiting,
        )
        self._open = OpenRecognitions[TurnRecognition]()

    async def warm(self) -> None:
        """Load the model: seconds, or minutes with a download.

        Raises RecogniserUnavailable, RecognitionFailed.
        """
        await self._queue.ready()

    async def check(self, speech: Samples | None = None) -> WhisperReport:
        """Recognise ``speech``: 16 kHz, int16 [n]; None = faint noise.

        Raises RecogniserUnavailable, RecognitionFailed.
        """
        began = time.monotonic()
        await self.warm()
        load_s = time.monotonic() - began
        if speech is None:
            speech = np.random.default_rng(0).normal(0.0, 30.0, RATE_HZ).astype(np.int16)
        began = time.monotonic()
        answer = await self._queue.ask(speech)
        took_s = time.monotonic() - began
        facts = getattr(self._queue.worker, "facts", {})
        seconds = len(speech) / RATE_HZ
        return WhisperReport(
            model=str(facts.get("model", self.settings.model)),
            language=", ".join(map(str, facts.get("languages", self.settings.languages))),
            real_time_factor=took_s / seconds,
            wait_s=took_s,
            source=str(facts.get("source", "")),
            device=str(facts.get("device", "")),
            dtype=str(facts.get("dtype", "")),
            threads=int(facts.get("threads", 0)),
            load_s=load_s,
            text=answer.text if is_plausible(answer, seconds) else "",
        )

    async def open(self, on_partial: PartialCallback | None = None) -> TurnRecognition:
        """Open a call's recognition; loads the model in the background."""
        self._open.check()
        self._queue.begin()
        recognition = TurnRecognition(self._hear, self._rules, on_partial, self._hear_so_far)
        return self._open.add(recognition)

    async def close(self) -> None:
        await self._open.close()
        await self._queue.close()

    def _late(self) -> str:
        if self._queue.loading:
            return "The model is still being loaded: await warm() before the first call."
        return "Name a smaller model, use a GPU, or allow more time (timeout_s)."

    async def _hear(self, samples: Samples) -> Transcript:
        return await self._transcript(samples)

    async def _hear_so_far(self, samples: Samples) -> Transcript:
        return await self._transcript(samples, spare=True)

    async def _transcript(self, samples: Samples, *, spare: bool = False) -> Transcript:
        if silent(samples, RATE_HZ):
            return Transcript("")
        answer = await self._queue.ask(samples, spare=spare)
        if not is_plausible(answer, len(samples) / RATE_HZ):
            return Transcript("")
        return Transcript(answer.text, answer.language, answer.confidence)


async def check(settings: WhisperSettings, speech: Samples | None = None) -> WhisperReport:
    """Check a recogniser and close it; see `WhisperRecogniser.check`."""
    recogniser = WhisperRecogniser(settings)
    try:
        return await recogniser.check(speech)
    finally:
        await recogniser.close()
