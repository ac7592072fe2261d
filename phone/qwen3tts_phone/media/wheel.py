"""Timer wheel of 1 ms ticks on which every call comes round once a packet (pure).

A late call keeps its grid. Up to a packet late, its packet is still sent (a receiver's jitter
buffer takes that), and the next one at least half a packet later. What is late by whole packets is
skipped: audio is never sent in a burst.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

TICKS = 256
"""Ticks of the wheel; more than the longest packet and a half."""


class Slotted(Protocol):
    """Member of the wheel."""

    @property
    def ptime_ms(self) -> int: ...

    @property
    def skip(self) -> Callable[[int], None]:
        """Called with the number of its slots that were not served."""


T = TypeVar("T", bound=Slotted)


class Wheel(Generic[T]):
    """Members by the tick of their next slot."""

    def __init__(self) -> None:
        self.tick = 0
        self.count = 0
        self.skipped = 0
        """Slots of members that were not served."""
        self._buckets: list[list[T]] = [[] for _ in range(TICKS)]
        self._pushed: dict[T, int] = {}

    def add(self, member: T, tick: int) -> None:
        self._buckets[tick % TICKS].append(member)
        self.count += 1
        # `next_tick` may have gone past it, over empty ticks.
        self.tick = min(self.tick, tick)

    def remove(self, member: T) -> None:
        for bucket in self._buckets:
            if member in bucket:
                bucket.remove(member)
                self.count -= 1
        self._pushed.pop(member, None)

    def next_tick(self) -> int:
        buckets, tick = self._buckets, self.tick
        while not buckets[tick % TICKS]:
            tick += 1
        self.tick = tick
        return tick

    def take(self, late_ticks: int) -> list[T]:
        """Return the members due now, ``late_ticks`` late, and schedule their next slots.

        Those late by whole packets skip these, and come in their next slot.
        """
        tick = self.tick
        buckets = self._buckets
        bucket = buckets[tick % TICKS]
        buckets[tick % TICKS] = []
        self.tick = tick + 1
        if late_ticks < 5 and not self._pushed:  # under half of the shortest packet
            for member in bucket:
                buckets[(tick + member.ptime_ms) % TICKS].append(member)
            return bucket
        return self._late(bucket, tick, late_ticks)

    def _late(self, bucket: Iterable[T], tick: int, late_ticks: int) -> list[T]:
        serve = []
        for member in bucket:
            ptime = member.ptime_ms
            push = self._pushed.pop(member, 0)
            grid, late = tick - push, late_ticks + push
            if late >= ptime:
                # Bounded by the wheel; a longer stall is skipped in several rounds.
                missed = min(late // ptime, (TICKS - 1) // ptime - 1)
                member.skip(missed)
                self.skipped += missed
                self._buckets[(grid + missed * ptime) % TICKS].append(member)
                continue
            serve.append(member)
            push = max(0, late - ptime // 2)
            if push:
                self._pushed[member] = push
            self._buckets[(grid + ptime + push) % TICKS].append(member)
        return serve
