"""How late packets are: the least that a buffer has to wait, learnt from arrivals (pure).

A packet's *transit* is its arrival less its media time; only differences of transits mean anything.
The least of the last seconds is the line at rest. How far packets lie above it fills a histogram
that forgets, and a high quantile of it is what a buffer must bridge (as in WebRTC's NetEQ).
"""

from __future__ import annotations

from collections import deque

BIN_S = 0.005
BINS = 128
"""Lateness is told apart up to 640 ms."""
FORGET = 0.9975
"""What a packet weighs after each that follows: half after 5.5 s of 20 ms."""
QUANTILE = 0.97
"""So many packets are to be in time."""
BUCKET_S = 0.5
BUCKETS = 8
"""The least transit is that of the last 4 s: a clock that is 200 ppm slow moves by 0.8 ms."""
PRIOR_PACKETS = 12.0
"""What the first guess weighs, in packets."""
LOOK_EVERY = 5
"""The quantile is computed anew after so many packets."""
HEAVIEST = 1e6


class ArrivalDelay:
    """Learns one stream's lateness."""

    def __init__(self, first_guess_s: float = 0.02) -> None:
        self._weights = [0.0] * BINS
        self._weights[min(BINS - 1, int(first_guess_s / BIN_S))] = PRIOR_PACKETS
        self._weight = 1.0  # of the next packet; it grows where the others should shrink
        self._buckets: deque[tuple[int, float]] = deque()  # number of the bucket, least transit
        self._least = 0.0
        self._bridge = self._quantile()
        self._unseen = 0  # packets since it was computed

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
        """The lateness that `QUANTILE` of the packets do not exceed, seconds."""
        if self._unseen >= LOOK_EVERY:
            self._bridge, self._unseen = self._quantile(), 0
        return self._bridge

    def arrived(self, at: float, transit_s: float) -> None:
        """Take a packet that came at ``at`` (s, any clock)."""
        number = int(at // BUCKET_S)
        buckets = self._buckets
        if not buckets or buckets[-1][0] != number:
            buckets.append((number, transit_s))
            while len(buckets) > 1 and buckets[0][0] <= number - BUCKETS:
                buckets.popleft()
            self._least = min(transit for _, transit in buckets)
        elif transit_s < buckets[-1][1]:
            buckets[-1] = (number, transit_s)
            self._least = min(self._least, transit_s)
        late = transit_s - self._least
        self._weights[min(BINS - 1, max(0, int(late / BIN_S)))] += self._weight
        self._weight /= FORGET
        if self._weight > HEAVIEST:
            self._weights = [weight / self._weight for weight in self._weights]
            self._weight = 1.0
        self._unseen += 1

    def restart(self) -> None:
        """Another stream follows: its transits have another zero, the network is the same."""
        self._buckets.clear()

    def _quantile(self) -> float:
        left = (1 - QUANTILE) * sum(self._weights)
        for number in range(BINS - 1, 0, -1):
            left -= self._weights[number]
            if left < 0:
                return (number + 1) * BIN_S
        return BIN_S
