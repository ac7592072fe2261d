"""What was said on one call, and on those that took its place, as far as it was heard."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable

from qwen3tts_phone.agent.chat_message import ChatMessage
from qwen3tts_phone.agent.history import History
from qwen3tts_phone.agent.turn_record import TurnRecord
from qwen3tts_phone.errors import WrongState
from qwen3tts_speech.line_file import LineFile

logger = logging.getLogger(__name__)


class Conversation:
    """One call's, while it lasts and after it."""

    def __init__(self, call_id: str, history: History, history_chars: int) -> None:
        self.call_id = call_id
        """Of the call that carries it now; a transfer by the far end changes it."""
        self.history = history
        self.turns: list[TurnRecord] = []
        """In order; the last one may not be ``done`` yet."""
        self.unsaid = ""
        """What the caller did not hear of the last reply that was stopped or broke off."""
        self.ended = ""
        """Why the call ended, in plain words; empty while it lasts."""
        self.go_on: Callable[[], Awaitable[bool]] | None = None
        """For `Talk`: says what is unsaid."""
        self._most_chars = history_chars

    @property
    def heard(self) -> str:
        """All that the caller has heard of us so far."""
        return self.history.heard

    def messages(self) -> list[ChatMessage]:
        """What the model would be sent now."""
        return self.history.messages(self._most_chars)

    async def continue_(self) -> bool:
        """Say what was not heard of the last reply; False where it was stopped again, or there is
        nothing.

        Raises:
            WrongState: the call is over.
        """
        if self.go_on is None:
            raise WrongState("Nothing can be said any more: the call is over.")
        return await self.go_on()


class ConversationLog(LineFile):
    """Appends turns to a file that only its owner may read; without words if not asked for."""

    def __init__(self, path: str | os.PathLike[str], *, words: bool = False) -> None:
        """Open or create ``path``; raises ``OSError`` where that is impossible."""
        super().__init__(path, what="conversation log")
        self.words = words

    def append(self, call_id: str, record: TurnRecord) -> None:
        """Write one line; never raises for a file system that fails."""
        self.write(record.to_json(call_id, words=self.words))
