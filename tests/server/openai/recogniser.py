"""A recogniser that hears what it is told, and an engine that has one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from qwen3tts_engine.base import Recogniser, TranscribedStretch
from tests.engine.fake_engine import FakeEngine


class FakeRecogniser:
    """Hears two stretches in everything."""

    model = "openai/whisper-fake"

    def __init__(self) -> None:
        self.asked: list[tuple[bytes, str | None, float]] = []
        self.error: Exception | None = None
        self.go = threading.Event()
        """Cleared, hearing waits for it."""
        self.go.set()
        self.began = threading.Event()
        self.stopped: Callable[[], bool] = lambda: False

    def hear(
        self, audio: bytes, language: str | None, *, max_s: float, stopped: Callable[[], bool]
    ) -> tuple[float, Sequence[TranscribedStretch]]:
        self.asked.append((audio, language, max_s))
        self.stopped = stopped
        self.began.set()
        assert self.go.wait(20)
        if self.error is not None:
            raise self.error
        return 31.25, (
            TranscribedStretch(0.0, 25.5, "Guten Tag."),
            TranscribedStretch(25.5, 31.25, "Auf Wiedersehen."),
        )


class Hearing(FakeEngine):
    """An engine that has one beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.whisper = FakeRecogniser()

    def recogniser(self) -> Recogniser | None:
        return self.whisper
