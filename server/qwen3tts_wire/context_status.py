"""State of one utterance at the client."""

from __future__ import annotations

import asyncio

from qwen3tts_wire.attempt import ContextAttempt
from qwen3tts_wire.errors import SpeechError
from qwen3tts_wire.events import Cancelled, Done
from qwen3tts_wire.formats import AudioFormat
from qwen3tts_wire.heard import Heard, Word, heard
from qwen3tts_wire.messages import ContextOpen
from qwen3tts_wire.resume import ReplayBuffer


class ContextStatus:
    """Text, audio and outcome of one utterance so far."""

    def __init__(self, opened: ContextOpen) -> None:
        self._opened = opened
        self._attempt = ContextAttempt(opened)
        self._replay = ReplayBuffer()
        self._finished = False
        self._cancelled: asyncio.Future[Cancelled] | None = None
        self.words: list[Word] = []
        """Words received so far."""
        self.received = 0
        """Samples received so far."""
        self.resumed = 0
        """Number of changes of its server."""
        self.done: Done | None = None
        """Set on arrival, before the iterator reaches it."""
        self.error: SpeechError | None = None
        """Error that ended the context."""

    @property
    def context_id(self) -> str:
        return self._opened.context_id

    @property
    def context_no(self) -> int:
        return self._attempt.opened.context_no

    @property
    def format(self) -> AudioFormat:
        return self._opened.format

    @property
    def text(self) -> str:
        return str(self._replay)

    @property
    def over(self) -> bool:
        """True once the server sends nothing more."""
        return self._finished or self.done is not None or self.error is not None

    @property
    def cancelling(self) -> bool:
        return self._cancelled is not None and not self._cancelled.done()

    def heard(self, position: int) -> Heard:
        """Return the text cut at a playout position, samples."""
        return heard(
            self.text, self.words, position, total=self.done.samples if self.done else None
        )
