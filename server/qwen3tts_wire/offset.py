"""The difference of two clocks, from pings."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """One ping."""

    offset_s: float
    rtt_s: float


class ClockOffset:
    """Server's monotonic clock minus ours, by the ping with the least round trip of the last few.

    The error of one sample is at most half its round trip (RFC 5905 section 8 uses the same rule:
    the sample of least delay is the best of the last eight).
    """

    def __init__(self, keep: int = 8) -> None:
        self._samples: deque[Sample] = deque(maxlen=keep)

    def add(self, sent: float, received: float, answered: float, returned: float) -> None:
        """One exchange: ours, theirs, theirs, ours; seconds."""
        rtt = max(0.0, (returned - sent) - (answered - received))
        offset = ((received - sent) + (answered - returned)) / 2
        self._samples.append(Sample(offset, rtt))

    @property
    def known(self) -> bool:
        """Whether there was a ping yet."""
        return bool(self._samples)

    @property
    def best(self) -> Sample:
        """The sample to trust; zero offset before the first ping."""
        return min(self._samples, key=lambda each: each.rtt_s, default=Sample(0.0, 0.0))
