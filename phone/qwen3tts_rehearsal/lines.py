"""Lines by which a simulated caller reaches an agent.

A `Line` places calls; a `CallerCall` is one of them, answered. The call pulls the caller's sound
frame by frame from a `Party` and gives it all that comes back, with the times of the wire. Times
are seconds of the machine's monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from qwen3tts_phone.audio.frames import HeardFrame, KeyPressed, SentFrame
from qwen3tts_rehearsal.scenario import LineSettings

Samples = NDArray[np.int16]
FRAME_S = 0.02
"""Length of a frame that is pulled."""


@dataclass(frozen=True, slots=True)
class CallEnd:
    """End of a call."""

    by: Literal["agent", "caller", "line"]
    """``line``: neither hung up, the connection failed."""
    at: float
    cause: str = ""
    """In plain words."""


class Party(Protocol):
    """Caller's side of a call: source of its sound, receiver of what comes. Nothing blocks."""

    def frame(self, at: float) -> Samples:
        """Return the next `FRAME_S` of sound at the call's rate, which leaves at about ``at``."""
        ...

    def sent(self, frame: SentFrame) -> None:
        """Take a frame that has left, in order, as the far end decodes it."""
        ...

    def heard(self, frame: HeardFrame) -> None:
        """Take a frame of the agent, in order of play."""
        ...

    def key(self, key: KeyPressed) -> None: ...


class CallerCall(Protocol):
    """One answered call."""

    @property
    def codec(self) -> str: ...

    @property
    def rate_hz(self) -> int:
        """Rate of `Party.frame`: the codec's own."""
        ...

    @property
    def answered_at(self) -> float: ...

    async def talk(self, party: Party) -> CallEnd: ...

    async def press(self, keys: str) -> None:
        """Press keys; returns after the last. Raises CallError, as NotPossible on a line without.

        Sound waits meanwhile.
        """
        ...

    async def hang_up(self) -> None: ...


class Line(Protocol):
    """Way to an agent, shared by the calls of a rehearsal; entered by its maker."""

    @property
    def target(self) -> str: ...

    async def connect(self, settings: LineSettings, seed: int) -> CallerCall:
        """Call the agent and wait for the answer.

        ``settings``: codec and impairments, drawn by ``seed``; the caller's surroundings are in
        `Party.frame` already.

        Raises SpeechError: CallRefused, CalleeUnreachable, NotPossible for settings that the line
        cannot have.
        """
        ...
