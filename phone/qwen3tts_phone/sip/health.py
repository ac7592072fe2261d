"""Which servers have failed lately, so that others are asked first (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from qwen3tts_phone.sip.hop import Hop

FIRST_S = 30.0
"""How long a server comes last after its first failure; each further one doubles it."""
LONGEST_S = 300.0
MAX_SERVERS = 1000


class Health:
    """Remembers failures by transport, address and port."""

    def __init__(self) -> None:
        self._failed: dict[tuple[str, str, int], tuple[float, float]] = {}
        """Until when a server comes last, and for how long that was, in seconds."""

    def failed(self, hop: Hop, now: float) -> None:
        """It did not answer, or has no room."""
        key = _key(hop)
        until, lasted = self._failed.pop(key, (0.0, 0.0))
        if now < until:
            # One failure that many requests saw is one failure.
            self._failed[key] = (until, lasted)
            return
        lasts = min(lasted * 2, LONGEST_S) if lasted else FIRST_S
        while len(self._failed) >= MAX_SERVERS:
            del self._failed[next(iter(self._failed))]
        self._failed[key] = (now + lasts, lasts)

    def answered(self, hop: Hop) -> None:
        """It is there."""
        self._failed.pop(_key(hop), None)

    def is_down(self, hop: Hop, now: float) -> bool:
        """Whether it failed and its time is not over."""
        return now < self._failed.get(_key(hop), (0.0, 0.0))[0]

    def order(self, hops: Iterable[Hop], now: float) -> list[Hop]:
        """As they came, but for those that have failed, which come last."""
        return sorted(hops, key=lambda hop: self.is_down(hop, now))


def _key(hop: Hop) -> tuple[str, str, int]:
    return (hop.transport, hop.host, hop.port)
