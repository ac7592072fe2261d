"""The base times of SIP's transactions."""

from __future__ import annotations

from dataclasses import dataclass

MAX_S = 600
"""No sensible line needs longer base times."""


@dataclass(frozen=True, slots=True)
class Timers:
    """The three base times of RFC 3261 section 17.1.1.1, in seconds; all others follow."""

    t1: float = 0.5
    """Estimate of the round trip; first retransmission."""
    t2: float = 4.0
    """Longest wait between retransmissions."""
    t4: float = 5.0
    """How long a message may stay in the network."""

    def __post_init__(self) -> None:
        for name in ("t1", "t2", "t4"):
            if not 0 < getattr(self, name) <= MAX_S:
                raise ValueError(f"{name}={getattr(self, name)} is not above 0 and up to {MAX_S}")

    @property
    def timeout(self) -> float:
        """64*T1: timers B, F, H, L and M."""
        return 64 * self.t1

    @property
    def failover(self) -> float:
        """16*T1: how long a silent server is asked where there is another one."""
        return 16 * self.t1
