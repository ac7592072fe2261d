"""Context states as two tables, the server's and the client's view.

Messages cross, so both ends see different orders. The server decides: in FAILED all from the
client is ignored. After the client's cancel audio is dropped (CANCELLING) until the answer.
``context.cancel`` is legal after ``context.done``, as a client still plays. A missing pair is
illegal: answered with an error, without effect.
"""

from __future__ import annotations

from enum import Enum, auto

from qwen3tts_wire.errors import ProtocolError


class ContextState(Enum):
    """State of a context."""

    NEW = auto()
    OPEN = auto()
    """Text and audio flow."""
    ENDING = auto()
    """Text ended; audio flows."""
    DONE = auto()
    """All audio sent; it may still play."""
    CANCELLING = auto()
    """Cancel pending; no audio counts."""
    CANCELLED = auto()
    """Ended by ``context.cancelled``."""
    FAILED = auto()
    """Ended by ``error``."""

    __hash__ = object.__hash__
    """States are looked up for each message; ``Enum`` hashes their names in Python."""


NEW, OPEN, ENDING, DONE, CANCELLING, CANCELLED, FAILED = ContextState

AUDIO = "audio"
"""Binary message."""
FAILURE = "error"
"""Error ending the context."""

Table = dict[tuple[ContextState, str], ContextState]

_BOTH: Table = {
    (NEW, "context.open"): OPEN,
    (OPEN, "text.append"): OPEN,
    (OPEN, "text.flush"): OPEN,
    (OPEN, "text.end"): ENDING,
    (OPEN, "playout.report"): OPEN,
    (OPEN, "audio.credit"): OPEN,
    (OPEN, "context.cancel"): CANCELLING,
    (OPEN, "context.started"): OPEN,
    (OPEN, AUDIO): OPEN,
    (OPEN, "alignment"): OPEN,
    (OPEN, FAILURE): FAILED,
    (ENDING, "playout.report"): ENDING,
    (ENDING, "audio.credit"): ENDING,
    (ENDING, "context.cancel"): CANCELLING,
    (ENDING, "context.started"): ENDING,
    (ENDING, AUDIO): ENDING,
    (ENDING, "alignment"): ENDING,
    (ENDING, "context.done"): DONE,
    (ENDING, FAILURE): FAILED,
    (DONE, "playout.report"): DONE,
    (DONE, "audio.credit"): DONE,
    (DONE, "context.cancel"): CANCELLING,
}

SERVER: Table = {
    **_BOTH,
    (NEW, FAILURE): FAILED,
    (CANCELLING, "context.cancelled"): CANCELLED,
    # The client had not read the error when it sent these.
    (FAILED, "text.append"): FAILED,
    (FAILED, "text.flush"): FAILED,
    (FAILED, "text.end"): FAILED,
    (FAILED, "playout.report"): FAILED,
    (FAILED, "audio.credit"): FAILED,
    (FAILED, "context.cancel"): FAILED,
}

CLIENT: Table = {
    **_BOTH,
    # The server had not read the cancel when it sent these; they are dropped.
    (CANCELLING, "context.started"): CANCELLING,
    (CANCELLING, AUDIO): CANCELLING,
    (CANCELLING, "alignment"): CANCELLING,
    (CANCELLING, "context.done"): CANCELLING,
    (CANCELLING, "context.cancelled"): CANCELLED,
    (CANCELLING, FAILURE): FAILED,
}

OVER = frozenset({CANCELLED, FAILED})
"""Final states."""


def move(table: Table, state: ContextState, message: str) -> ContextState:
    """Return the next state; ProtocolError without one."""
    try:
        return table[state, message]
    except KeyError:
        raise ProtocolError(
            f"{message} is not allowed while the context is {state.name}."
        ) from None
