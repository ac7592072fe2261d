"""Conversation as far as it was heard, and as sent to the model.

Consecutive turns of one side are sent as one message: many models accept only alternating ones.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace

from qwen3tts_agent.chat.messages import ChatMessage, ToolCall
from qwen3tts_agent.turn_record import TurnRecord
from qwen3tts_phone.errors import WrongState
from qwen3tts_speech.line_file import LineFile

RUNNING = "The tool has not finished yet."
"""Result of a tool that still runs: no tool call may be without one."""
CALL_BEGINS = "[The call is answered.]"
"""Caller's message where we speak first: many models accept no conversation that begins with ours.
"""


@dataclass(slots=True, eq=False)
class HistoryEntry:
    """Contribution of one side."""

    ours: bool
    written: str = field(default="", repr=False)
    """All of it: the caller's text, or ours as written so far."""
    heard: str | None = field(default=None, repr=False)
    """Part of ours that reached the caller; None = it is being spoken, or waits."""
    stopped_at: int | None = None
    """Characters heard of ours, where an interruption stopped it that it may outlast."""
    calls: tuple[ToolCall, ...] = ()
    """Tools that the model used after this text."""
    results: dict[str, str] = field(default_factory=dict, repr=False)
    """Results of these by the id of the tool call."""

    @property
    def text(self) -> str:
        return self.written if self.heard is None else self.heard

    @property
    def unsaid(self) -> str:
        return "" if self.heard is None else self.written[len(self.heard) :]


class History:
    """History of one call (pure)."""

    def __init__(self, system: str = "") -> None:
        self.system = system
        self.entries: list[HistoryEntry] = []

    def caller(self, text: str) -> HistoryEntry:
        entry = HistoryEntry(ours=False, written=text)
        self.entries.append(entry)
        return entry

    def ours(self, text: str = "") -> HistoryEntry:
        return self.add(HistoryEntry(ours=True, written=text))

    def add(self, entry: HistoryEntry) -> HistoryEntry:
        self.entries.append(entry)
        return entry

    @property
    def settled(self) -> bool:
        """Return whether it is known of all of ours how much was heard, so far."""
        return not any(
            each.ours and each.heard is None and each.stopped_at is None for each in self.entries
        )

    @property
    def heard(self) -> str:
        return _joined(entry.heard or "" for entry in self.entries if entry.ours)

    @property
    def last_said(self) -> str:
        """Return the text of ours that came last, as far as it is known."""
        texts = (entry.text for entry in reversed(self.entries) if entry.ours)
        return next((text for text in texts if text.strip()), "")

    def messages(
        self, most_chars: int | None = None, *, tentative: str | None = None
    ) -> list[ChatMessage]:
        """Return the messages for the model.

        Beyond ``most_chars`` the oldest entries are left out, with their tools, up to the
        caller's last. ``tentative``: as if the caller's turn ended with this text.
        """
        entries = self.entries
        if tentative is not None:
            entries = [_as_if_over(entry) for entry in entries]
            entries.append(HistoryEntry(ours=False, written=tentative))
        if most_chars is not None:
            entries = _within(entries, len(self.system), most_chars)
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
        return len(self.entries) - len(_within(self.entries, len(self.system), most_chars))


def _as_if_over(entry: HistoryEntry) -> HistoryEntry:
    if entry.heard is not None or entry.stopped_at is None:
        return entry
    return replace(entry, heard=entry.written[: entry.stopped_at])


def _within(entries: list[HistoryEntry], chars: int, most_chars: int) -> list[HistoryEntry]:
    first = len(entries)
    last = max((n for n, each in enumerate(entries) if not each.ours), default=0)
    for number in range(len(entries) - 1, -1, -1):
        chars += _size(entries[number])
        if chars > most_chars and number < last:
            break
        first = number
    return entries[first:]


def _size(entry: HistoryEntry) -> int:
    calls = sum(len(call.name) + len(call.arguments) for call in entry.calls)
    return len(entry.text) + calls + sum(map(len, entry.results.values()))


def _joined(texts: Iterable[str]) -> str:
    return " ".join(stripped for text in texts if (stripped := text.strip()))


def _add(messages: list[ChatMessage], message: ChatMessage) -> None:
    last = messages[-1] if messages else None
    if last is not None and last.role == message.role and not last.tool_calls:
        messages[-1] = ChatMessage(
            message.role, _joined((last.content, message.content)), message.tool_calls
        )
    elif message.content or message.tool_calls:
        messages.append(message)


logger = logging.getLogger(__name__)


class Conversation:
    """Conversation with one caller, also after the call."""

    def __init__(self, call_id: str, history: History, history_chars: int) -> None:
        self.call_id = call_id
        """Id of the present call; a transfer by the far end changes it."""
        self.history = history
        self.turns: list[TurnRecord] = []
        """Turns in order; the last one may not be ``done`` yet."""
        self.unsaid = ""
        """Text not heard of the last reply that was interrupted or broke off."""
        self.ended = ""
        """Reason of the call's end, in plain words; empty while it lasts."""
        self.go_on: Callable[[], Awaitable[bool]] | None = None
        """Speaks what is unsaid; set by `AgentSession`."""
        self._most_chars = history_chars

    @property
    def heard(self) -> str:
        return self.history.heard

    def messages(self) -> list[ChatMessage]:
        return self.history.messages(self._most_chars)

    async def continue_(self) -> bool:
        """Speak the unheard rest; False: interrupted again, or nothing is left.

        Raises WrongState.
        """
        if self.go_on is None:
            raise WrongState("Nothing can be said any more: the call is over.")
        return await self.go_on()


class ConversationLog(LineFile):
    """Log file of turns (owner only); texts only with ``words``."""

    def __init__(self, path: str | os.PathLike[str], *, words: bool = False) -> None:
        """Open or create ``path``; raises OSError."""
        super().__init__(path, what="conversation log")
        self.words = words

    def append(self, call_id: str, record: TurnRecord) -> None:
        """Write one line; never raises for a failing file system."""
        self.write(record.to_json(call_id, words=self.words))
