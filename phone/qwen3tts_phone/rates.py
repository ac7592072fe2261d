"""How often something may happen: token buckets, one for each source, in bounded memory (pure)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Bucket:
    """Lets through ``burst`` at once, and ``per_s`` a second from then on.

    Args:
        per_s: tokens that come back in a second.
        burst: tokens that it holds, and begins with.
    """

    __slots__ = ("_at", "_left", "burst", "per_s")

    def __init__(self, per_s: float, burst: float, now: float) -> None:
        self.per_s = per_s
        self.burst = burst
        self._left = burst
        self._at = now

    def take(self, now: float) -> bool:
        """Take one token; False when there is none."""
        self._refill(now)
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

    def wait_s(self, now: float) -> float:
        """Seconds until there is a token; 0 when there is one."""
        self._refill(now)
        return max(0.0, (1.0 - self._left) / self.per_s) if self.per_s > 0 else 0.0

    def _refill(self, now: float) -> None:
        # A clock that steps back takes nothing away.
        self._left = min(self.burst, self._left + max(0.0, now - self._at) * self.per_s)
        self._at = max(self._at, now)


class Recent(Generic[T]):
    """What is remembered of each source, the ``most`` that were seen last."""

    def __init__(self, make: Callable[[str, float], T], most: int) -> None:
        self._make = make
        self._most = most
        self._kept: OrderedDict[str, T] = OrderedDict()

    def of(self, key: str, now: float) -> T:
        """What is known of one; made where it was not seen lately."""
        known = self._kept.get(key)
        if known is None:
            known = self._kept[key] = self._make(key, now)
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        return known

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()

    def __len__(self) -> int:
        return len(self._kept)
