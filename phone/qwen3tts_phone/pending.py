"""Connections that have been accepted and have not yet shown what they are for (pure).

A connection with half a request costs a file descriptor, as a call does. So connections are counted
from their acceptance on, and have one deadline for all that comes before a call: TLS, the request,
the start message or token. Where too many wait, the oldest of the address with the most of them
makes room: one address cannot keep others out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PendingLimits:
    """Limits of connections that wait."""

    total: int
    per_host: int
    wait_s: float
    """Seconds from the acceptance on."""
    is_proxy: Callable[[str], bool] = lambda host: False
    """Whether an address stands for many others: ``per_host`` is not asked of it."""


class PendingConnections:
    """Those of one port. Times are seconds of one clock; keys name connections."""

    def __init__(self, limits: PendingLimits) -> None:
        self._limits = limits
        self._waiting: dict[Hashable, tuple[str, float]] = {}
        """Address and deadline, oldest first."""
        self._by_host: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._waiting)

    def accepted(self, key: Hashable, host: str, now: float) -> Hashable | None:
        """Count a new connection; returns the one to close in its place, if there are too many."""
        self.left(key)
        victim: Hashable | None = None
        if self._by_host[host] >= self._limits.per_host and not self._limits.is_proxy(host):
            victim = self._oldest_of(host)
        elif len(self._waiting) >= self._limits.total:
            victim = self._oldest_of(max(self._by_host, key=self._by_host.__getitem__))
        if victim is not None:
            self.left(victim)
        self._waiting[key] = (host, now + self._limits.wait_s)
        self._by_host[host] += 1
        return victim

    def left(self, key: Hashable) -> None:
        """It has shown what it is for, or is closed; harmless for one that does not wait."""
        found = self._waiting.pop(key, None)
        if found is None:
            return
        self._by_host[found[0]] -= 1
        if not self._by_host[found[0]]:
            del self._by_host[found[0]]

    def overdue(self, now: float) -> list[Hashable]:
        """Take out the connections whose time is over, for closing."""
        found = []
        for key, (_, deadline) in self._waiting.items():
            if deadline > now:
                break
            found.append(key)
        for key in found:
            self.left(key)
        return found

    def _oldest_of(self, host: str) -> Hashable:
        return next(key for key, (each, _) in self._waiting.items() if each == host)
