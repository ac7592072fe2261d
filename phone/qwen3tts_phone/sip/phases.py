"""Who is changing a session, as a table (RFC 3261 section 14, RFC 3311)."""

from __future__ import annotations

from enum import Enum, auto


class Phase(Enum):
    """Who is changing the session."""

    IDLE = auto()
    SENT = auto()
    """Our re-INVITE or UPDATE is out."""
    GLARE = auto()
    """It met theirs (491, 500); waiting to send it anew."""
    RECEIVED = auto()
    """Theirs is here, the owner has not answered."""
    ANSWERED = auto()
    """We said 200 to a re-INVITE; the ACK is still to come."""


class Move(Enum):
    """What may happen to a change."""

    SEND = auto()
    DONE = auto()
    PENDING = auto()
    """491, or 500 with a time to wait."""
    RECEIVE = auto()
    ACCEPT = auto()
    """A re-INVITE is accepted."""
    SETTLE = auto()
    """An UPDATE or PRACK is accepted: it has no ACK."""
    REFUSE = auto()
    ACK = auto()
    ABORT = auto()


H, M = Phase, Move
PHASES: dict[tuple[Phase, Move], Phase] = {
    (H.IDLE, M.SEND): H.SENT,
    (H.IDLE, M.RECEIVE): H.RECEIVED,
    (H.IDLE, M.ABORT): H.IDLE,
    (H.SENT, M.DONE): H.IDLE,
    (H.SENT, M.PENDING): H.GLARE,
    (H.SENT, M.ABORT): H.IDLE,
    (H.GLARE, M.SEND): H.SENT,
    (H.GLARE, M.RECEIVE): H.RECEIVED,
    (H.GLARE, M.ABORT): H.IDLE,
    (H.RECEIVED, M.ACCEPT): H.ANSWERED,
    (H.RECEIVED, M.SETTLE): H.IDLE,
    (H.RECEIVED, M.REFUSE): H.IDLE,
    (H.RECEIVED, M.ABORT): H.IDLE,
    (H.ANSWERED, M.ACK): H.IDLE,
    # A new one shows that the 200 arrived, whatever became of its ACK.
    (H.ANSWERED, M.RECEIVE): H.RECEIVED,
    (H.ANSWERED, M.ABORT): H.IDLE,
}
