"""Life of a context as two state tables: the server's view and the client's.

Both ends see the same messages in different orders, because they cross on the way; therefore two
tables.

- The server decides. An end on its way while the engine fails arrives in FAILED, where everything
  from the client is ignored.
- From the moment the client cancels, audio on its way is dropped (CANCELLING), until the server's
  answer ends the context.
- ``context.cancel`` is legal after ``context.done``, because a client still plays then.

A missing pair is illegal: it is answered with an error, and nothing changes.
"""

from __future__ import annotations

from enum import Enum, auto

from qwen3tts_wire.errors import ProtocolError


class ContextState(Enum):
    """State of a context."""

    NEW = auto()
    """Not yet opened."""
    OPEN = auto()
    """Text may come, audio may go."""
    ENDING = auto()
    """All text is there; audio may go."""
    DONE = auto()
    """All audio was sent; it may still be playing."""
    CANCELLING = auto()
    """``context.cancel`` is under way; no audio counts any more."""
    CANCELLED = auto()
    """Over, by ``context.cancelled``."""
    FAILED = auto()
    """Over, by ``error``."""

    __hash__ = object.__hash__
    """States are looked up for each message; ``Enum`` hashes their names in Python."""


NEW, OPEN, ENDING, DONE, CANCELLING, CANCELLED, FAILED = ContextState

AUDIO = "audio"
"""The binary message, in the tables."""
FAILURE = "error"
"""An error that ends the context."""

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
"""States after which nothing of the context comes."""


def move(table: Table, state: ContextState, message: str) -> ContextState:
    """Return the state after ``message``; ProtocolError where the table has none."""
    try:
        return table[state, message]
    except KeyError:
        raise ProtocolError(
            f"{message} is not allowed while the context is {state.name}."
        ) from None
