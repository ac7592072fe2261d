"""What a caller of the pacer can do wrong."""

from __future__ import annotations

from enum import Enum


class PacerError(Exception):
    """The caller broke a rule of the pacer; what it asked for was not done."""


class IllegalMove(PacerError):
    """This cannot happen in this state."""


class ContextError(PacerError):
    """Frames or a finish of a context that was not begun, is finished, or is out of its turn."""


class PacerFull(PacerError):
    """The queue has no room for these frames; none was taken."""


class State(Enum):
    """What the pacer is doing."""

    IDLE = "idle"
    FILLING = "filling"
    PLAYING = "playing"
    STARVED = "starved"
    DRAINING = "draining"
    HELD = "held"


class Move(Enum):
    """What changes the state."""

    FRAMES = "frames"
    """Frames have come in."""
    READY = "ready"
    """The policy says that playing is safe."""
    WAIT = "wait"
    """The next utterance is at the head of the queue and not yet safe to start."""
    DRY = "dry"
    """A slot is due, the queue is empty, and the utterance is not finished."""
    FINISH = "finish"
    """The utterance whose frames came last is complete."""
    EMPTY = "empty"
    """The last frame of a complete utterance has been sent."""
    INTERRUPT = "interrupt"
    HOLD = "hold"
    RESUME = "resume"


TRANSITIONS: dict[tuple[State, Move], State] = {
    (State.IDLE, Move.FRAMES): State.FILLING,
    # A call taken off hold with nothing queued is idle, though its utterance is not yet finished.
    (State.IDLE, Move.FINISH): State.IDLE,
    (State.IDLE, Move.INTERRUPT): State.IDLE,
    (State.IDLE, Move.HOLD): State.HELD,
    (State.FILLING, Move.FRAMES): State.FILLING,
    (State.FILLING, Move.READY): State.PLAYING,
    (State.FILLING, Move.FINISH): State.DRAINING,
    (State.FILLING, Move.INTERRUPT): State.IDLE,
    (State.FILLING, Move.HOLD): State.HELD,
    (State.PLAYING, Move.FRAMES): State.PLAYING,
    (State.PLAYING, Move.WAIT): State.FILLING,
    (State.PLAYING, Move.DRY): State.STARVED,
    (State.PLAYING, Move.FINISH): State.DRAINING,
    (State.PLAYING, Move.INTERRUPT): State.IDLE,
    (State.PLAYING, Move.HOLD): State.HELD,
    (State.STARVED, Move.FRAMES): State.STARVED,
    (State.STARVED, Move.READY): State.PLAYING,
    (State.STARVED, Move.FINISH): State.DRAINING,
    (State.STARVED, Move.INTERRUPT): State.IDLE,
    (State.STARVED, Move.HOLD): State.HELD,
    (State.DRAINING, Move.FRAMES): State.PLAYING,
    (State.DRAINING, Move.EMPTY): State.IDLE,
    (State.DRAINING, Move.INTERRUPT): State.IDLE,
    (State.DRAINING, Move.HOLD): State.HELD,
    (State.HELD, Move.FRAMES): State.HELD,
    (State.HELD, Move.FINISH): State.HELD,
    (State.HELD, Move.INTERRUPT): State.HELD,
    (State.HELD, Move.RESUME): State.IDLE,
}


def after(state: State, move: Move) -> State:
    """The state that follows; raises `IllegalMove` for what the table lacks."""
    try:
        return TRANSITIONS[state, move]
    except KeyError:
        raise IllegalMove(f"{move.value} while {state.value}") from None
