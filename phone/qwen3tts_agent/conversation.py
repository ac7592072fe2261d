"""What the model is told of a call so far: the caller's words, and ours as far as they were heard.

A reply stands in it as the model wrote it while it is being said, and as it was heard once that is
settled; what was not heard is in ``unsaid`` of its entry. Turns that follow each other without an
answer are sent as one message, since many models take none but alternating ones.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from qwen3tts_agent.chat.messages import ChatMessage, ToolCall
from qwen3tts_agent.turn_record import TurnRecord
from qwen3tts_phone.errors import WrongState
from qwen3tts_speech.line_file import LineFile

RUNNING = "The tool has not finished yet."
"""The result of a tool that still runs: no call may be without one."""
CALL_BEGINS = "[The call is answered.]"
"""The caller's part where we speak first: many models take no conversation that begins with us."""


@dataclass(slots=True, eq=False)
class HistoryEntry:
    """What one side said at one go."""

    ours: bool
    written: str = field(default="", repr=False)
    """All of it: the caller's words, or ours as they were written so far."""
    heard: str | None = field(default=None, repr=False)
    """Of ours: the part that reached the caller; None = it is being said, or waits to be."""
    calls: tuple[ToolCall, ...] = ()
    """Of ours: the tools that the model used after these words."""
    results: dict[str, str] = field(default_factory=dict, repr=False)
    """What they gave, by the id of the call."""

    @property
    def text(self) -> str:
        """What the model is told that was said."""
        return self.written if self.heard is None else self.heard

    @property
    def unsaid(self) -> str:
        """Of ours, once it is settled: the part that the caller did not hear."""
        return "" if self.heard is None else self.written[len(self.heard) :]


class History:
    """One call's conversation (pure)."""

    def __init__(self, system: str = "") -> None:
        self.system = system
        self.entries: list[HistoryEntry] = []
        """From the beginning of the call."""

    def caller(self, text: str) -> HistoryEntry:
        """The caller said ``text``."""
        entry = HistoryEntry(ours=False, written=text)
        self.entries.append(entry)
        return entry

    def ours(self, text: str = "") -> HistoryEntry:
        """We begin to say something; its ``written`` may grow."""
        entry = HistoryEntry(ours=True, written=text)
        self.entries.append(entry)
        return entry

    @property
    def heard(self) -> str:
        """All that the caller has heard of us, as far as it is settled."""
        return _joined(entry.heard or "" for entry in self.entries if entry.ours)

    def messages(self, most_chars: int | None = None) -> list[ChatMessage]:
        """As it is sent to the model.

        ``most_chars``: where it would be longer, the oldest entries are left out, each with its
        tools, up to the last that the caller said.
        """
        entries = self.entries if most_chars is None else self._within(most_chars)
        messages: list[ChatMessage] = []
        if self.system:
            messages.append(ChatMessage("system", self.system))
        begun = len(messages)
        for entry in entries:
            if not entry.ours:
                _add(messages, ChatMessage("user", entry.text.strip()))
                continue
            if len(messages) == begun and (entry.text.strip() or entry.calls):
                messages.append(ChatMessage("user", CALL_BEGINS))
            _add(messages, ChatMessage("assistant", entry.text.strip(), entry.calls))
            for call in entry.calls:
                result = entry.results.get(call.id, RUNNING)
                messages.append(ChatMessage("tool", result, tool_call_id=call.id))
        return messages

    def left_out(self, most_chars: int) -> int:
        """How many entries `messages` leaves out with that bound."""
        return len(self.entries) - len(self._within(most_chars))

    def _within(self, most_chars: int) -> list[HistoryEntry]:
        chars, first = len(self.system), len(self.entries)
        last = max((n for n, each in enumerate(self.entries) if not each.ours), default=0)
        for number in range(len(self.entries) - 1, -1, -1):
            chars += _size(self.entries[number])
            if chars > most_chars and number < last:
                break
            first = number
        return self.entries[first:]


def _size(entry: HistoryEntry) -> int:
    calls = sum(len(call.name) + len(call.arguments) for call in entry.calls)
    return len(entry.text) + calls + sum(map(len, entry.results.values()))


def _joined(texts: Iterable[str]) -> str:
    return " ".join(stripped for text in texts if (stripped := text.strip()))


def _add(messages: list[ChatMessage], message: ChatMessage) -> None:
    """Put a message behind the others, or into the last one of the same side."""
    last = messages[-1] if messages else None
    if last is not None and last.role == message.role and not last.tool_calls:
        messages[-1] = ChatMessage(
            message.role, _joined((last.content, message.content)), message.tool_calls
        )
    elif message.content or message.tool_calls:
        messages.append(message)


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
