"""What a client of vLLM-Omni's WebSocket may say when: a table."""

from __future__ import annotations

from enum import Enum

from qwen3tts_wire.errors import ProtocolError


class State(Enum):
    """What the client may say."""

    NEW = "no session.config yet"
    IDLE = "no utterance is open"
    OPEN = "an utterance is open"
    LEAVING = "the client has said good-bye"
    CLOSED = "nothing more is read"


MOVES: dict[tuple[State, str], State] = {
    (State.NEW, "session.config"): State.IDLE,
    (State.IDLE, "session.config"): State.IDLE,
    (State.IDLE, "input.text"): State.OPEN,
    (State.OPEN, "input.text"): State.OPEN,
    (State.IDLE, "input.commit"): State.IDLE,
    (State.OPEN, "input.commit"): State.OPEN,
    (State.IDLE, "input.done"): State.IDLE,
    (State.OPEN, "input.done"): State.IDLE,
    (State.IDLE, "input.cancel"): State.IDLE,
    (State.OPEN, "input.cancel"): State.IDLE,
    (State.IDLE, "session.close"): State.LEAVING,
    (State.OPEN, "session.close"): State.LEAVING,
}
"""A pair that is missing is an error; so is the type, where it is in no pair."""
TYPES = tuple(dict.fromkeys(kind for _, kind in MOVES))


def move(state: State, kind: str) -> State:
    """The state after a message of this type.

    Raises:
        ProtocolError: there is no such type, or this is not its time.
    """
    after = MOVES.get((state, kind))
    if after is not None:
        return after
    if state is State.NEW:
        raise ProtocolError(
            f"Expected session.config, got: {kind[:40]!a}.", remedy="Send session.config first."
        )
    if kind not in TYPES:
        raise ProtocolError(
            f"Unknown message type: {kind[:40]!a}.", remedy=f"There are {', '.join(TYPES)}."
        )
    raise ProtocolError(
        f"{kind} cannot be applied while an utterance is in progress.",
        remedy="Send input.done first.",
    )
