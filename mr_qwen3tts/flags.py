"""The host's flags in a context's ``data``, by which it ends a turn without saying so to anybody.

``cancel_current_turn`` is set by everything that stops a turn; ``finished_conversation`` also by a
command that ends the talk by itself. A new turn begins by setting both to False.
"""

from __future__ import annotations

from typing import Any

CANCEL = "cancel_current_turn"
FINISHED = "finished_conversation"


def data_of(context: Any) -> dict[str, Any] | None:
    """Where the flags are; None where there is no such thing."""
    data = getattr(context, "data", None)
    return data if isinstance(data, dict) else None


def cancelled(context: Any) -> bool:
    """Whether the turn is being stopped."""
    return bool((data_of(context) or {}).get(CANCEL))


def finishing(context: Any) -> bool:
    """Whether no further command of this turn will run: a text that grows will not be completed."""
    return cancelled(context) or bool((data_of(context) or {}).get(FINISHED))


class InterruptedTurn:
    """Knows the interrupted turn when it goes on as if nothing had happened.

    In JSON mode the host takes its flag away at the model's next token, and runs the turn's further
    commands.
    """

    def __init__(self) -> None:
        self._data: dict[str, Any] | None = None

    def note(self, context: Any) -> None:
        """It is this one."""
        if cancelled(context):
            self._data = data_of(context)

    def goes_on(self, context: Any) -> bool:
        """Whether it is the one that speaks."""
        data = data_of(context)
        if data is None or data is not self._data:
            return False
        if CANCEL in data:  # as a new turn sets it
            self._data = None
            return False
        return True
