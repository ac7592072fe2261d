"""Recordings written down by a Whisper model, off the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

from qwen3tts_engine.base import Engine, Heard, Recogniser
from qwen3tts_engine.wrapped import recogniser_of
from qwen3tts_server.recognition_process import RecognitionProcess
from qwen3tts_wire.errors import EngineUnavailable, ServerBusy
from qwen3tts_wire.whisper.models import AUTO, installed_model

MOST_WAITING = 8
"""Recordings that wait while one is heard."""


class Recognition:
    """Hears one recording after the other, in a thread of its own."""

    def __init__(self, engine: Engine, whisper: str | None) -> None:
        """``whisper``: a model's folder, size or hub id; ``auto``: the engine's own, else one that
        a package brings; None: the engine's own, if any."""
        self._engine = engine
        self._whisper = whisper
        self._own: RecognitionProcess | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="hear a recording")
        self._here = 0

    def start(self) -> None:
        """Check the model that is named; it is loaded with the first recording.

        Raises:
            EngineUnavailable: there is no such model, or the extra ``stt`` is not installed.
        """
        if self._whisper == AUTO:
            model = installed_model()
            self._own = None if model is None else RecognitionProcess(model)
        elif self._whisper is not None:
            from qwen3tts_engine.qwen3.voices.transcribe import check_whisper

            if find_spec("faster_whisper") is None:
                raise EngineUnavailable(
                    "The recogniser needs the package faster-whisper.",
                    remedy="pip install 'mr_qwen3tts[stt]', or leave openai.whisper out.",
                )
            check_whisper(self._whisper)
            self._own = RecognitionProcess(self._whisper)

    def close(self) -> None:
        """End; recordings that wait are cancelled."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._own is not None:
            self._own.close()

    def recogniser(self) -> Recogniser | None:
        """Return what hears; None: nothing is configured."""
        of_engine = recogniser_of(self._engine)
        if self._whisper == AUTO:
            return of_engine or self._own
        return self._own or of_engine

    async def hear(
        self, recogniser: Recogniser, audio: bytes, language: str | None, max_s: float
    ) -> tuple[float, Sequence[Heard]]:
        """Hear one recording in its turn; cancelled, it ends with the stretch under way.

        Raises:
            ServerBusy: too many wait.
            BadRequest, LimitExceeded, EngineUnavailable: see base.Recogniser.
        """
        if self._here > MOST_WAITING:
            raise ServerBusy(f"{self._here} recordings are being heard.", remedy="Try again later.")
        stopped = threading.Event()
        self._here += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(
                self._pool,
                lambda: recogniser.hear(audio, language, max_s=max_s, stopped=stopped.is_set),
            )
        finally:
            stopped.set()
            self._here -= 1
