"""How punctual the media loop is: counted in its process, reported to the parent."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

LATE_NS = 5_000_000
"""A slot served this long after its time counts as late: a quarter of a packet of 20 ms."""


@dataclass(frozen=True)
class MediaLoad:
    """How punctual the media process is: totals since its start, but for the two said."""

    at_ns: int = 0
    """When this was measured, nanoseconds after the start."""
    cpu_ns: int = 0
    """Processor time that the loop's thread has used."""
    calls: int = 0
    """Calls now."""
    slots: int = 0
    """Slots served: a packet each, sent or not."""
    late: int = 0
    """Of these: served more than 5 ms after their time."""
    skipped: int = 0
    """Slots that passed unserved."""
    latest_ns: int = 0
    """The greatest lateness since the report before."""


class LoadMeter:
    """Counts the slots that were served, late and skipped, and the time that the loop was busy."""

    def __init__(self, now_ns: int) -> None:
        self._began_ns = now_ns
        self._slots = 0
        self._late = 0
        self._skipped = 0
        self._latest_ns = 0

    def served(self, slots: int, late_ns: int, skipped: int) -> None:
        """Count the slots of one tick, served ``late_ns`` after it; ``skipped`` is a total."""
        self._slots += slots
        self._skipped = skipped
        if late_ns > LATE_NS:
            self._late += slots
        if late_ns > self._latest_ns:
            self._latest_ns = late_ns

    def report(self, now_ns: int, calls: int) -> dict[str, int]:
        """The totals as of now, and the greatest lateness since the report before."""
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
