"""The host's turn: its flags in a context's `data`, and what it says before a command runs."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Turn:
    """The last partial command of this task."""

    context: Any
    """The host's ChatContext of its call."""
    command: str
    cmd_id: str | None
    task: asyncio.Task[Any] | None = None
    """The task in which the host reads the model's stream."""
    words: str = ""
    """Text so far; all of it when the command runs."""
    taken: bool = False
    """Whether the command has run; a later caller is another plugin."""


_turn: ContextVar[Turn | None] = ContextVar("qwen3tts_turn", default=None)


def enter(turn: Turn) -> None:
    """Keep it for the command that follows."""
    _turn.set(turn)


def take(commands: frozenset[str], words: str | None = None) -> Turn | None:
    """Return what the pipe left for one of these commands, once.

    With ``words`` only if they match: another plugin may speak while the model writes.
    """
    turn = _turn.get()
    if turn is None or turn.taken or turn.command not in commands:
        return None
    if words is not None and not _same(turn.words, words):
        return None
    turn.taken = True
    return turn


def _same(shown: str, said: str) -> bool:
    shown, said = " ".join(shown.split()), " ".join(said.split())
    return said == shown or (bool(shown) and said.startswith(shown))


def log_id_of(context: Any) -> str:
    """Return the call's name in the host, or an empty string."""
    found = getattr(context, "log_id", None)
    return found if isinstance(found, str) else ""


CANCEL = "cancel_current_turn"
FINISHED = "finished_conversation"


def data_of(context: Any) -> dict[str, Any] | None:
    """Return the mapping with the flags, or None."""
    data = getattr(context, "data", None)
    return data if isinstance(data, dict) else None


def cancelled(context: Any) -> bool:
    """Return whether the turn is being stopped."""
    return bool((data_of(context) or {}).get(CANCEL))


def finishing(context: Any) -> bool:
    """Return whether no further command of this turn will run."""
    return cancelled(context) or bool((data_of(context) or {}).get(FINISHED))


class InterruptedTurn:
    """The interrupted turn.

    In JSON mode the host clears its flag at the next token and runs the turn's further commands.
    """

    def __init__(self) -> None:
        self._data: dict[str, Any] | None = None

    def note(self, context: Any) -> None:
        """Mark the current turn."""
        if cancelled(context):
            self._data = data_of(context)

    def goes_on(self, context: Any) -> bool:
        """Return whether the marked turn speaks."""
        data = data_of(context)
        if data is None or data is not self._data:
            return False
        if CANCEL in data:  # as a new turn sets it
            self._data = None
            return False
        return True
