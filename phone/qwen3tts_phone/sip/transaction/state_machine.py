"""Transaction state machines (RFC 3261 section 17, RFC 6026's Accepted) as tables.

(state, event) -> (next state, actions); absent pairs are illegal. A state's timers
(``STATE_TIMERS``) run while it is entered.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class TransactionKind(Enum):
    INVITE_CLIENT = auto()
    CLIENT = auto()
    INVITE_SERVER = auto()
    SERVER = auto()


class TransactionState(Enum):
    """States of RFC 3261 figures 5 to 8 and RFC 6026 section 7."""

    CALLING = auto()
    TRYING = auto()
    PROCEEDING = auto()
    COMPLETED = auto()
    CONFIRMED = auto()
    ACCEPTED = auto()
    TERMINATED = auto()


class TransactionEvent(Enum):
    RECEIVE_1XX = auto()
    RECEIVE_2XX = auto()
    RECEIVE_FAILURE = auto()
    RECEIVE_REQUEST = auto()
    RECEIVE_ACK = auto()
    SEND_1XX = auto()
    SEND_2XX = auto()
    SEND_FAILURE = auto()
    TRANSPORT_ERROR = auto()
    """For requests only; a lost response follows the retransmitted request."""
    TIMER_A = auto()
    TIMER_B = auto()
    TIMER_D = auto()
    TIMER_E = auto()
    TIMER_F = auto()
    TIMER_G = auto()
    TIMER_H = auto()
    TIMER_I = auto()
    TIMER_J = auto()
    TIMER_K = auto()
    TIMER_L = auto()
    TIMER_M = auto()
    GIVE_UP = auto()
    """Owner's limit: a proceeding INVITE (section 9.1 for a CANCEL), a silent server with an
    alternative, surplus answered requests."""


class TransactionAction(Enum):
    SEND_REQUEST = auto()
    SEND_RESPONSE = auto()
    SEND_ACK = auto()
    DELIVER = auto()
    TIMED_OUT = auto()
    UNREACHABLE = auto()


S, E, A = TransactionState, TransactionEvent, TransactionAction
Move = tuple[TransactionState, tuple[TransactionAction, ...]]
Table = dict[tuple[TransactionState, TransactionEvent], Move]

# RFC 3261 figure 5, RFC 6026 section 8.4.
_INVITE_CLIENT: Table = {
    (S.CALLING, E.RECEIVE_1XX): (S.PROCEEDING, (A.DELIVER,)),
    (S.CALLING, E.RECEIVE_2XX): (S.ACCEPTED, (A.DELIVER,)),
    (S.CALLING, E.RECEIVE_FAILURE): (S.COMPLETED, (A.SEND_ACK, A.DELIVER)),
    (S.CALLING, E.TIMER_A): (S.CALLING, (A.SEND_REQUEST,)),
    (S.CALLING, E.TIMER_B): (S.TERMINATED, (A.TIMED_OUT,)),
    (S.CALLING, E.TRANSPORT_ERROR): (S.TERMINATED, (A.UNREACHABLE,)),
    (S.CALLING, E.GIVE_UP): (S.TERMINATED, (A.TIMED_OUT,)),
    (S.PROCEEDING, E.GIVE_UP): (S.TERMINATED, (A.TIMED_OUT,)),
    (S.PROCEEDING, E.RECEIVE_1XX): (S.PROCEEDING, (A.DELIVER,)),
    (S.PROCEEDING, E.RECEIVE_2XX): (S.ACCEPTED, (A.DELIVER,)),
    (S.PROCEEDING, E.RECEIVE_FAILURE): (S.COMPLETED, (A.SEND_ACK, A.DELIVER)),
    (S.PROCEEDING, E.TRANSPORT_ERROR): (S.PROCEEDING, ()),
    (S.COMPLETED, E.RECEIVE_1XX): (S.COMPLETED, ()),
    (S.COMPLETED, E.RECEIVE_2XX): (S.COMPLETED, ()),
    (S.COMPLETED, E.RECEIVE_FAILURE): (S.COMPLETED, (A.SEND_ACK,)),
    (S.COMPLETED, E.TIMER_D): (S.TERMINATED, ()),
    (S.COMPLETED, E.TRANSPORT_ERROR): (S.TERMINATED, ()),
    (S.ACCEPTED, E.RECEIVE_1XX): (S.ACCEPTED, ()),
    # Each 2xx, retransmitted or of another fork branch, is acknowledged by the dialog.
    (S.ACCEPTED, E.RECEIVE_2XX): (S.ACCEPTED, (A.DELIVER,)),
    (S.ACCEPTED, E.RECEIVE_FAILURE): (S.ACCEPTED, ()),
    (S.ACCEPTED, E.TIMER_M): (S.TERMINATED, ()),
    (S.ACCEPTED, E.TRANSPORT_ERROR): (S.ACCEPTED, ()),
}

# RFC 3261 figure 6.
_CLIENT: Table = {
    (S.TRYING, E.RECEIVE_1XX): (S.PROCEEDING, (A.DELIVER,)),
    (S.TRYING, E.RECEIVE_2XX): (S.COMPLETED, (A.DELIVER,)),
    (S.TRYING, E.RECEIVE_FAILURE): (S.COMPLETED, (A.DELIVER,)),
    (S.TRYING, E.TIMER_E): (S.TRYING, (A.SEND_REQUEST,)),
    (S.TRYING, E.TIMER_F): (S.TERMINATED, (A.TIMED_OUT,)),
    (S.TRYING, E.TRANSPORT_ERROR): (S.TERMINATED, (A.UNREACHABLE,)),
    (S.TRYING, E.GIVE_UP): (S.TERMINATED, (A.TIMED_OUT,)),
    (S.PROCEEDING, E.RECEIVE_1XX): (S.PROCEEDING, (A.DELIVER,)),
    (S.PROCEEDING, E.RECEIVE_2XX): (S.COMPLETED, (A.DELIVER,)),
    (S.PROCEEDING, E.RECEIVE_FAILURE): (S.COMPLETED, (A.DELIVER,)),
    (S.PROCEEDING, E.TIMER_E): (S.PROCEEDING, (A.SEND_REQUEST,)),
    (S.PROCEEDING, E.TIMER_F): (S.TERMINATED, (A.TIMED_OUT,)),
    (S.PROCEEDING, E.TRANSPORT_ERROR): (S.TERMINATED, (A.UNREACHABLE,)),
    (S.COMPLETED, E.RECEIVE_1XX): (S.COMPLETED, ()),
    (S.COMPLETED, E.RECEIVE_2XX): (S.COMPLETED, ()),
    (S.COMPLETED, E.RECEIVE_FAILURE): (S.COMPLETED, ()),
    (S.COMPLETED, E.TIMER_K): (S.TERMINATED, ()),
    (S.COMPLETED, E.TRANSPORT_ERROR): (S.COMPLETED, ()),
}

# RFC 3261 figure 7, RFC 6026 section 7.1.
_INVITE_SERVER: Table = {
    (S.PROCEEDING, E.RECEIVE_REQUEST): (S.PROCEEDING, (A.SEND_RESPONSE,)),
    (S.PROCEEDING, E.RECEIVE_ACK): (S.PROCEEDING, ()),
    (S.PROCEEDING, E.SEND_1XX): (S.PROCEEDING, (A.SEND_RESPONSE,)),
    (S.PROCEEDING, E.SEND_2XX): (S.ACCEPTED, (A.SEND_RESPONSE,)),
    (S.PROCEEDING, E.SEND_FAILURE): (S.COMPLETED, (A.SEND_RESPONSE,)),
    # RFC 6026 absorbs a retransmitted INVITE here; the same 200 again is what RFC 3261 sends, is
    # harmless, and spares a peer that lost the first one a wait.
    (S.ACCEPTED, E.RECEIVE_REQUEST): (S.ACCEPTED, (A.SEND_RESPONSE,)),
    # Only from peers that reuse the INVITE's branch.
    (S.ACCEPTED, E.RECEIVE_ACK): (S.ACCEPTED, (A.DELIVER,)),
    (S.ACCEPTED, E.SEND_2XX): (S.ACCEPTED, (A.SEND_RESPONSE,)),
    (S.ACCEPTED, E.TIMER_L): (S.TERMINATED, ()),
    (S.COMPLETED, E.RECEIVE_REQUEST): (S.COMPLETED, (A.SEND_RESPONSE,)),
    (S.COMPLETED, E.RECEIVE_ACK): (S.CONFIRMED, ()),
    (S.COMPLETED, E.TIMER_G): (S.COMPLETED, (A.SEND_RESPONSE,)),
    (S.COMPLETED, E.TIMER_H): (S.TERMINATED, (A.TIMED_OUT,)),
    (S.COMPLETED, E.GIVE_UP): (S.TERMINATED, ()),
    (S.CONFIRMED, E.GIVE_UP): (S.TERMINATED, ()),
    (S.CONFIRMED, E.RECEIVE_REQUEST): (S.CONFIRMED, ()),
    (S.CONFIRMED, E.RECEIVE_ACK): (S.CONFIRMED, ()),
    (S.CONFIRMED, E.TIMER_I): (S.TERMINATED, ()),
}

# RFC 3261 figure 8.
_SERVER: Table = {
    (S.TRYING, E.RECEIVE_REQUEST): (S.TRYING, ()),
    (S.TRYING, E.SEND_1XX): (S.PROCEEDING, (A.SEND_RESPONSE,)),
    (S.TRYING, E.SEND_2XX): (S.COMPLETED, (A.SEND_RESPONSE,)),
    (S.TRYING, E.SEND_FAILURE): (S.COMPLETED, (A.SEND_RESPONSE,)),
    (S.PROCEEDING, E.RECEIVE_REQUEST): (S.PROCEEDING, (A.SEND_RESPONSE,)),
    (S.PROCEEDING, E.SEND_1XX): (S.PROCEEDING, (A.SEND_RESPONSE,)),
    (S.PROCEEDING, E.SEND_2XX): (S.COMPLETED, (A.SEND_RESPONSE,)),
    (S.PROCEEDING, E.SEND_FAILURE): (S.COMPLETED, (A.SEND_RESPONSE,)),
    (S.COMPLETED, E.RECEIVE_REQUEST): (S.COMPLETED, (A.SEND_RESPONSE,)),
    (S.COMPLETED, E.TIMER_J): (S.TERMINATED, ()),
    (S.COMPLETED, E.GIVE_UP): (S.TERMINATED, ()),
}

TRANSITIONS: dict[TransactionKind, Table] = {
    TransactionKind.INVITE_CLIENT: _INVITE_CLIENT,
    TransactionKind.CLIENT: _CLIENT,
    TransactionKind.INVITE_SERVER: _INVITE_SERVER,
    TransactionKind.SERVER: _SERVER,
}

INITIAL_STATES = {
    TransactionKind.INVITE_CLIENT: S.CALLING,
    TransactionKind.CLIENT: S.TRYING,
    TransactionKind.INVITE_SERVER: S.PROCEEDING,
    TransactionKind.SERVER: S.TRYING,
}

STATE_TIMERS: dict[tuple[TransactionKind, TransactionState], tuple[TransactionEvent, ...]] = {
    (TransactionKind.INVITE_CLIENT, S.CALLING): (E.TIMER_A, E.TIMER_B),
    (TransactionKind.INVITE_CLIENT, S.COMPLETED): (E.TIMER_D,),
    (TransactionKind.INVITE_CLIENT, S.ACCEPTED): (E.TIMER_M,),
    (TransactionKind.CLIENT, S.TRYING): (E.TIMER_E, E.TIMER_F),
    (TransactionKind.CLIENT, S.PROCEEDING): (E.TIMER_E, E.TIMER_F),
    (TransactionKind.CLIENT, S.COMPLETED): (E.TIMER_K,),
    (TransactionKind.INVITE_SERVER, S.ACCEPTED): (E.TIMER_L,),
    (TransactionKind.INVITE_SERVER, S.COMPLETED): (E.TIMER_G, E.TIMER_H),
    (TransactionKind.INVITE_SERVER, S.CONFIRMED): (E.TIMER_I,),
    (TransactionKind.SERVER, S.COMPLETED): (E.TIMER_J,),
}
"""Timers that run in a state."""

RETRANSMISSION_TIMERS = {E.TIMER_A, E.TIMER_E, E.TIMER_G}
TIMEOUTS = {E.TIMER_B, E.TIMER_F, E.TIMER_H, E.TIMER_L, E.TIMER_M}

MAX_TIMER_S = 600
"""Upper bound of a base time."""


@dataclass(frozen=True, slots=True)
class Timers:
    """Base times of RFC 3261 section 17.1.1.1, seconds."""

    t1: float = 0.5
    """Estimate of the round trip; first retransmission."""
    t2: float = 4.0
    """Longest wait between retransmissions."""
    t4: float = 5.0
    """Lifetime of a message in the network."""

    def __post_init__(self) -> None:
        for name in ("t1", "t2", "t4"):
            if not 0 < getattr(self, name) <= MAX_TIMER_S:
                raise ValueError(
                    f"{name}={getattr(self, name)} is not above 0 and up to {MAX_TIMER_S}"
                )

    @property
    def timeout(self) -> float:
        """64*T1: timers B, F, H, L and M."""
        return 64 * self.t1

    @property
    def failover(self) -> float:
        """16*T1: timeout of a server with an alternative."""
        return 16 * self.t1
