"""Whose slot is when: a wheel of 1 ms ticks on which every call comes round once a packet (pure).

A call that is served late keeps its grid. Up to a packet late, its packet still goes out at once (a
receiver's jitter buffer takes that), and the next one follows at least half a packet later: it is
pushed back a little, and the one after it is on the grid again. What is late by whole packets is
skipped: late audio is never sent in a burst.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

TICKS = 256
"""Ticks ahead that the wheel knows; more than the longest packet and a half."""


class Slotted(Protocol):
    """What can be put on the wheel."""

    @property
    def ptime_ms(self) -> int:
        """Duration of its packets: it comes round so often."""

    @property
    def skip(self) -> Callable[[int], None]:
        """Told how many of its slots have passed unserved."""


T = TypeVar("T", bound=Slotted)


class Wheel(Generic[T]):
    """Members by the tick at which they are served next."""

    def __init__(self) -> None:
        self.tick = 0
        """The next tick to be served."""
        self.count = 0
        """Members on it."""
        self.skipped = 0
        """Slots of members that passed unserved."""
        self._buckets: list[list[T]] = [[] for _ in range(TICKS)]
        self._pushed: dict[T, int] = {}

    def add(self, member: T, tick: int) -> None:
        """Serve ``member`` at ``tick`` first; its grid counts from there."""
        self._buckets[tick % TICKS].append(member)
        self.count += 1
        # `next_tick` may have gone past it, over ticks with nobody in them.
        self.tick = min(self.tick, tick)

    def remove(self, member: T) -> None:
        """Forget it, wherever it is."""
        for bucket in self._buckets:
            if member in bucket:
                bucket.remove(member)
                self.count -= 1
        self._pushed.pop(member, None)

    def next_tick(self) -> int:
        """The next tick with somebody in it; there must be members."""
        buckets, tick = self._buckets, self.tick
        while not buckets[tick % TICKS]:
            tick += 1
        self.tick = tick
        return tick

    def take(self, late_ticks: int) -> list[T]:
        """The members to serve now, ``late_ticks`` after their tick; they come round again.

        The ones that are late by whole packets skip these, and are met again in their next slot.
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
