"""Messages of the media process to its parent: the queue, and load reports."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import NamedTuple

LATE_NS = 5_000_000
"""Lateness of a late slot: a quarter of a 20 ms packet."""


@dataclass(frozen=True)
class MediaLoad:
    """Load of the media process: totals since its start, except where stated."""

    at_ns: int = 0
    """Time of measurement, nanoseconds after the start."""
    cpu_ns: int = 0
    """Processor time of the loop's thread."""
    calls: int = 0
    slots: int = 0
    """Slots served, with or without a packet."""
    late: int = 0
    """Of these, more than 5 ms late."""
    skipped: int = 0
    latest_ns: int = 0
    """Greatest lateness since the last report."""


class LoadMeter:
    """Counts slots served, late and skipped."""

    def __init__(self, now_ns: int) -> None:
        self._began_ns = now_ns
        self._slots = 0
        self._late = 0
        self._skipped = 0
        self._latest_ns = 0

    def served(self, slots: int, late_ns: int, skipped: int) -> None:
        """Count the slots of one tick, ``late_ns`` late; ``skipped`` is a total."""
        self._slots += slots
        self._skipped = skipped
        if late_ns > LATE_NS:
            self._late += slots
        if late_ns > self._latest_ns:
            self._latest_ns = late_ns

    def report(self, now_ns: int, calls: int) -> dict[str, int]:
        latest_ns, self._latest_ns = self._latest_ns, 0
        return asdict(
            MediaLoad(
                now_ns - self._began_ns,
                time.thread_time_ns(),
                calls,
                self._slots,
                self._late,
                self._skipped,
                latest_ns,
            )
        )


EVENTS_MOST = 10_000
"""Events of all calls that may wait; later ones are dropped."""
LEG_EVENTS_MOST = 100
"""Events of one call that may wait, so that one far end cannot crowd out the others."""


class _Waiting(NamedTuple):
    leg: int
    data: bytes
    droppable: bool


class Outbox:
    """Queue of messages awaiting transmission: replies first, then the rest in order.

    Replies and facts of this process are bounded by what the parent asks for, and never dropped.
    Events that the far end causes are bounded here.
    """

    def __init__(self) -> None:
        self._replies: deque[bytes] = deque()
        self._rest: deque[_Waiting] = deque()
        self._events: dict[int, int] = {}
        self._droppable = 0
        self._load: bytes | None = None

    def __bool__(self) -> bool:
        return bool(self._replies or self._rest or self._load)

    @property
    def replies(self) -> int:
        return len(self._replies)

    def reply(self, data: bytes) -> None:
        self._replies.append(data)

    def fact(self, leg: int, data: bytes) -> None:
        self._rest.append(_Waiting(leg, data, False))

    def event(self, leg: int, data: bytes) -> bool:
        waiting = self._events.get(leg, 0)
        if waiting >= LEG_EVENTS_MOST or self._droppable >= EVENTS_MOST:
            return False
        self._events[leg] = waiting + 1
        self._droppable += 1
        self._rest.append(_Waiting(leg, data, True))
        return True

    def load(self, data: bytes) -> None:
        self._load = data

    def first(self) -> bytes | None:
        """Return the message to send next; None = the queue is empty."""
        if self._replies:
            return self._replies[0]
        return self._rest[0].data if self._rest else self._load

    def sent(self) -> None:
        if self._replies:
            self._replies.popleft()
        elif self._rest:
            waiting = self._rest.popleft()
            if waiting.droppable:
                self._uncount(waiting.leg)
        else:
            self._load = None

    def forget(self, leg: int) -> None:
        if any(each.leg == leg for each in self._rest):
            self._rest = deque(each for each in self._rest if each.leg != leg)
        self._droppable -= self._events.pop(leg, 0)

    def _uncount(self, leg: int) -> None:
        self._droppable -= 1
        self._events[leg] -= 1
        if not self._events[leg]:
            del self._events[leg]
