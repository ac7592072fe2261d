"""States of the pacer, the table of moves between them, and errors.

::

    idle ──frames──► filling ──ready──► playing ◄──ready── starved
      ▲                 │  ▲              │  │  └─underrun───►▲
      │                 │  └─────wait─────┘  │                │
      └───empty── draining ◄────finish───────┴─────finish─────┘

*Filling* waits for the policy, *draining* plays out a finished utterance, *held* is a call on hold:
nothing is sent and the queue is kept.
"""

from __future__ import annotations

from enum import Enum


class PacerError(Exception):
    """Violation of a rule of the pacer; nothing was done."""


class IllegalMove(PacerError):
    """Move that is impossible in this state."""


class ContextError(PacerError):
    """Frames or finish of a context that was not begun, is finished, or is out of turn."""


class PacerFull(PacerError):
    """No room in the queue; nothing was taken."""


class State(Enum):
    """State of the pacer."""

    IDLE = "idle"
    FILLING = "filling"
    PLAYING = "playing"
    STARVED = "starved"
    DRAINING = "draining"
    HELD = "held"


class Move(Enum):
    """Cause of a change of state."""

    FRAMES = "frames"
    READY = "ready"
    """The policy says that playout is safe."""
    WAIT = "wait"
    """The next utterance is at the head of the queue and not safe to start."""
    UNDERRUN = "underrun"
    """A slot is due, the queue is empty, and the utterance is not finished."""
    FINISH = "finish"
    EMPTY = "empty"
    """The last frame of a complete utterance was sent."""
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
    (State.PLAYING, Move.UNDERRUN): State.STARVED,
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
    """Return the next state. Raises IllegalMove."""
    try:
        return TRANSITIONS[state, move]
    except KeyError:
        raise IllegalMove(f"{move.value} while {state.value}") from None
