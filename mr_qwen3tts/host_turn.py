"""The host's turn: its flags (`data`), and speech before a command runs."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Turn:
    """Last partial command of a task."""

    context: Any
    """The call's ChatContext."""
    command: str
    cmd_id: str | None
    task: asyncio.Task[Any] | None = None
    """Task that reads the model."""
    words: str = ""
    """Text so far, or whole."""
    taken: bool = False
    """True after the command ran; a later caller is another plugin."""


_turn: ContextVar[Turn | None] = ContextVar("qwen3tts_turn", default=None)


def enter(turn: Turn) -> None:
    _turn.set(turn)


def take(commands: frozenset[str], words: str | None = None) -> Turn | None:
    """Return the pipe's turn for these commands, once.

    With ``words`` only a match: another plugin may speak meanwhile.
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
    """Return the call's host name, or empty."""
    found = getattr(context, "log_id", None)
    return found if isinstance(found, str) else ""


CANCEL = "cancel_current_turn"
FINISHED = "finished_conversation"


def data_of(context: Any) -> dict[str, Any] | None:
    """Return the flags, or None."""
    data = getattr(context, "data", None)
    return data if isinstance(data, dict) else None


def cancelled(context: Any) -> bool:
    return bool((data_of(context) or {}).get(CANCEL))


def finishing(context: Any) -> bool:
    """Return whether the turn runs no further command."""
    return cancelled(context) or bool((data_of(context) or {}).get(FINISHED))


class InterruptedTurn:
    """Interrupted turn.

    In JSON mode the host clears its flag at the next token and runs further commands.
    """

    def __init__(self) -> None:
        self._data: dict[str, Any] | None = None

    def note(self, context: Any) -> None:
        if cancelled(context):
            self._data = data_of(context)

    def goes_on(self, context: Any) -> bool:
        data = data_of(context)
        if data is None or data is not self._data:
            return False
        if CANCEL in data:  # as a new turn sets it
            self._data = None
            return False
        return True
