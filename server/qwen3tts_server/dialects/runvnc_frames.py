"""Mu-law on its way to one client: cut into frames, each at its time."""

from __future__ import annotations

from collections import deque

FRAME = 160
"""Bytes of one binary message: 20 ms at 8 kHz."""
SILENCE = b"\xff"
"""Zero in mu-law (ITU-T G.711 table 2a), which fills up the last frame."""


class Frames:
    """The frames of one utterance; times are seconds. ``step_s`` is the least time from one to the
    next; 0: they go out as they come."""

    def __init__(self, step_s: float = 0.0) -> None:
        self._step_s = step_s
        self._waiting: deque[bytes] = deque()
        self._rest = b""
        self._begun: float | None = None
        self._taken = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, data: bytes) -> None:
        """More of it, any number of bytes."""
        data = self._rest + data
        whole = len(data) - len(data) % FRAME
        self._waiting.extend(data[at : at + FRAME] for at in range(0, whole, FRAME))
        self._rest = data[whole:]

    def finish(self) -> None:
        """Nothing follows: the last frame is filled up."""
        if self._rest:
            self._waiting.append(self._rest.ljust(FRAME, SILENCE))
            self._rest = b""

    def clear(self) -> None:
        """Nothing more of it goes out."""
        self._waiting.clear()
        self._rest = b""

    def due(self, now: float) -> float | None:
        """When the next one may go out; None: there is none."""
        if not self._waiting:
            return None
        if not self._step_s:
            return now
        if self._begun is None:
            self._begun = now
        # After a pause in the sound the grid begins anew: late frames are not sent in a burst.
        self._begun = max(self._begun, now - (self._taken + 1) * self._step_s)
        return self._begun + self._taken * self._step_s

    def take(self, most: int, now: float) -> list[bytes]:
        """Those that are due, at most so many."""
        taken: list[bytes] = []
        while len(taken) < most and (due := self.due(now)) is not None and due <= now:
            taken.append(self._waiting.popleft())
            self._taken += 1
        return taken
