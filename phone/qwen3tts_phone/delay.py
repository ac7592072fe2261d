"""How late packets are: the least that a buffer has to wait, learnt from arrivals (pure).

A packet's *transit* is its arrival less its media time; only differences of transits mean anything.
The least of the last seconds is the line at rest. How far the latest packets lie above it fills a
histogram that forgets, and a high quantile of it is what a buffer must bridge (as in WebRTC's
NetEQ).
"""

from __future__ import annotations

from collections import deque

BIN_S = 0.005
BINS = 128
"""Lateness is told apart up to 640 ms."""
BUCKET_S = 0.5
"""Of each half second the latest packet counts: a single stall makes many late packets, and is one
event."""
FORGET = 0.97
"""What a half second weighs after each that follows: half after 11 s (NetEQ's 0.983 keeps the delay
of ten bad seconds for a minute)."""
QUANTILE = 0.95
"""In so many half seconds every packet is to be in time (NetEQ's figure)."""
BUCKETS = 8
"""The least transit is that of the last 4 s: a clock that is 200 ppm slow moves by 0.8 ms."""
PRIOR = 0.5
"""What the first guess weighs, in half seconds: it is forgotten after five of them."""


class ArrivalDelay:
    """Learns one stream's lateness."""

    def __init__(self, first_guess_s: float = 0.02) -> None:
        self._weights = [0.0] * BINS
        self._weights[min(BINS - 1, int(first_guess_s / BIN_S))] = PRIOR
        self._bridge = self._quantile()
        self._buckets: deque[tuple[int, float]] = deque()  # number of the bucket, least transit
        self._least = 0.0
        self._latest = 0.0  # lateness of the latest packet of the last bucket

    @property
    def known(self) -> bool:
        """Whether a packet has come."""
        return bool(self._buckets)

    @property
    def least_s(self) -> float:
        """The transit of the line at rest, seconds."""
        return self._least

    @property
    def bridge_s(self) -> float:
        """The lateness that must be bridged, seconds."""
        return self._bridge

    def arrived(self, at: float, transit_s: float) -> None:
        """Take a packet that came at ``at`` (s, any clock)."""
        number = int(at // BUCKET_S)
        buckets = self._buckets
        if not buckets or buckets[-1][0] != number:
            if buckets:
                self._count(self._latest)
            buckets.append((number, transit_s))
            while len(buckets) > 1 and buckets[0][0] <= number - BUCKETS:
                buckets.popleft()
            self._least = min(transit for _, transit in buckets)
            self._latest = 0.0
        elif transit_s < buckets[-1][1]:
            buckets[-1] = (number, transit_s)
            self._least = min(self._least, transit_s)
        self._latest = max(self._latest, transit_s - self._least)

    def restart(self) -> None:
        """Another stream follows: its transits have another zero, the network is the same."""
        self._buckets.clear()

    def _count(self, late_s: float) -> None:
        self._weights = [FORGET * weight for weight in self._weights]
        self._weights[min(BINS - 1, int(late_s / BIN_S))] += 1.0
        self._bridge = self._quantile()

    def _quantile(self) -> float:
        left = (1 - QUANTILE) * sum(self._weights)
        for number in range(BINS - 1, 0, -1):
            left -= self._weights[number]
            if left < 0:
                return (number + 1) * BIN_S
        return BIN_S
