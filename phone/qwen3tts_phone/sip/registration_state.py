"""The states of a registration and the moves between them."""

from __future__ import annotations

from enum import Enum, auto


class RegistrationState(Enum):
    """Where a registration stands."""

    IDLE = auto()
    REGISTERING = auto()
    REGISTERED = auto()
    REFRESHING = auto()
    RETRYING = auto()
    """An attempt failed; it is tried again."""
    UNREGISTERING = auto()
    ENDED = auto()


class RegistrationEvent(Enum):
    """What may happen to it."""

    START = auto()
    GRANTED = auto()
    REFUSED = auto()
    """And that is the end of it, if it was the first attempt."""
    POSTPONED = auto()
    """The first attempt failed, and is to be tried again."""
    DUE = auto()
    STOP = auto()


S, E = RegistrationState, RegistrationEvent

TABLE: dict[tuple[RegistrationState, RegistrationEvent], RegistrationState] = {
    (S.IDLE, E.START): S.REGISTERING,
    (S.REGISTERING, E.GRANTED): S.REGISTERED,
    (S.REGISTERING, E.REFUSED): S.ENDED,
    (S.REGISTERING, E.POSTPONED): S.RETRYING,
    (S.REGISTERING, E.STOP): S.UNREGISTERING,
    (S.REGISTERED, E.DUE): S.REFRESHING,
    (S.REGISTERED, E.STOP): S.UNREGISTERING,
    (S.REFRESHING, E.GRANTED): S.REGISTERED,
    (S.REFRESHING, E.REFUSED): S.RETRYING,
    (S.REFRESHING, E.STOP): S.UNREGISTERING,
    (S.RETRYING, E.DUE): S.REFRESHING,
    (S.RETRYING, E.STOP): S.UNREGISTERING,
    (S.UNREGISTERING, E.GRANTED): S.ENDED,
    (S.UNREGISTERING, E.REFUSED): S.ENDED,
    (S.UNREGISTERING, E.STOP): S.UNREGISTERING,
}
