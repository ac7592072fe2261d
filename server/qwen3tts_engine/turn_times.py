"""How long a turn of the engine and a decode take, as seen by the scheduler. Pure."""

from __future__ import annotations

RISE = 0.5
"""Weight of a turn slower than the mean: rows must be safe at once."""
FALL = 0.1
"""Weight of a faster one."""
LONGEST_S = 0.25
"""A longer turn is a stall of the machine, not what the next will take."""


class TurnTimes:
    """Running means, seconds; they rise faster than they fall."""

    def __init__(self) -> None:
        self.turn_s = 0.0
        """From a plan that has work to the next plan."""
        self.decode_s = 0.0
        """From a plan that names a decode to the arrival of its sound."""
        self._began: float | None = None

    @property
    def latency_s(self) -> float:
        """From a plan that leaves a frame to the next plan until the frame is sound."""
        return self.turn_s + self.decode_s

    def began(self, now: float) -> None:
        """A plan with work was given out."""
        self._began = now

    def turn(self, now: float) -> None:
        """The next plan is asked for."""
        if self._began is not None and now > self._began:
            self.turn_s = _mean(self.turn_s, now - self._began)
            self._began = None

    def decoded(self, seconds: float) -> None:
        """A decode took so long."""
        self.decode_s = _mean(self.decode_s, seconds)


def _mean(mean: float, seconds: float) -> float:
    seconds = min(max(0.0, seconds), LONGEST_S)
    if mean == 0.0:
        return seconds
    return mean + (RISE if seconds > mean else FALL) * (seconds - mean)
