"""What the host tells before a command runs, kept for the command itself.

The host keeps one global "current context" for commands and awaits between setting and using it:
with several calls at once a command may be given another call's context. Its ``partial_command``
pipe always gets the right one, and the task that runs the command is made by the task that ran the
pipe. So the pipe leaves the truth in a context variable, and the command finds it there.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Turn:
    """The last partial command of this task."""

    context: Any
    """The host's ChatContext of the call that it belongs to."""
    command: str
    cmd_id: str | None
    task: asyncio.Task[Any] | None = None
    """The task in which the host reads the model's stream."""
    words: str = ""
    """What it is to say, so far; all of it when the command runs."""
    taken: bool = False
    """Whether the command has run: what calls it now is another plugin, whose word counts."""


_turn: ContextVar[Turn | None] = ContextVar("qwen3tts_turn", default=None)


def enter(turn: Turn) -> None:
    """Leave it for the command that follows."""
    _turn.set(turn)


def take(commands: frozenset[str], words: str | None = None) -> Turn | None:
    """What the pipe left for one of these commands; once, as the command runs once.

    With ``words``, only if they are the command's: another plugin may speak while the model writes.
    """
    turn = _turn.get()
    if turn is None or turn.taken or turn.command not in commands:
        return None
    if words is not None and not _same(turn.words, words):
        return None
    turn.taken = True
    return turn


def _same(shown: str, said: str) -> bool:
    """Whether what the pipe was shown becomes what is said; the host shows all of it at the end."""
    shown, said = " ".join(shown.split()), " ".join(said.split())
    return said == shown or (bool(shown) and said.startswith(shown))


def log_id_of(context: Any) -> str:
    """The call's name in the host; empty where there is none."""
    found = getattr(context, "log_id", None)
    return found if isinstance(found, str) else ""
