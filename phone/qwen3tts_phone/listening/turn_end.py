"""When a turn is over: the plug-in point for something smarter than a pause.

    class Smart:
        async def finished(self, turn: TurnSoFar) -> bool | float:
            return await model.end_of_turn(turn.samples, turn.rate_hz, turn.text)

It is asked once each time the caller has been silent for ``notice_ms``. True (or a probability of
at least a half) ends the turn at once, before ``pause_ms`` have passed; False lets the pause last
up to ``longest_pause_ms``. Until it has answered, and when it fails or is too slow, ``pause_ms``
decides as if it were not there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class TurnSoFar:
    """What a turn detector is asked about."""

    samples: NDArray[np.int16] = field(repr=False)
    """The turn's sound up to now, with the pause; linear, shape [n]. The last 30 s at most."""
    rate_hz: int
    text: str = field(repr=False)
    """What the recogniser has said of it so far; empty = nothing yet."""
    began_at: float
    ended_at: float
    """The last voiced sample."""
    now: float


class TurnDetector(Protocol):
    """Says whether the caller has finished."""

    async def finished(self, turn: TurnSoFar) -> bool | float | None:
        """Whether it is over, or how probable that is (0 to 1); None = do as the pause says.

        Cancelled when the caller goes on meanwhile.
        """


class PauseDetector:
    """The plain rule: ``pause_ms`` of silence."""

    async def finished(self, turn: TurnSoFar) -> bool | float | None:
        """No opinion."""
        return None
