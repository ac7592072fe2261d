"""Expected ends of launched work, by the durations of earlier work. Pure.

A thread can block on one event only: that expected first.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

WEIGHT = 0.25
"""Weight of a duration in its mean."""
EARLIER = 0.9
"""Work found finished is taken to have lasted this part of the time until then: an estimate that
is too long is never observed, one that is too short is corrected by the wait that it causes."""


@dataclass(slots=True, eq=False)
class LaunchedWork:
    key: Hashable
    launched: float
    """Seconds."""
    after: tuple[LaunchedWork, ...]
    """Unfinished work that it waits for: of its own stream, or another's."""
    end: float
    """Expected when it was launched, then observed."""


class CompletionForecast:
    """Times are monotonic seconds; keys name work of the same duration."""

    def __init__(self) -> None:
        self._durations: dict[Hashable, float] = {}

    def launch(self, key: Hashable, now: float, *after: LaunchedWork | None) -> LaunchedWork:
        work = LaunchedWork(key, now, tuple(each for each in after if each is not None), now)
        work.end = self.expected_end(work)
        return work

    def expected_end(self, work: LaunchedWork) -> float:
        return self._start(work) + self._durations.get(work.key, 0.0)

    def finished(self, work: LaunchedWork, now: float, *, waited: bool) -> None:
        seconds = max(0.0, now - self._start(work))
        known = self._durations.get(work.key)
        if not waited:
            seconds *= EARLIER
            self._durations[work.key] = seconds if known is None else min(known, seconds)
        elif known is None:
            self._durations[work.key] = seconds
        else:
            self._durations[work.key] = known + WEIGHT * (seconds - known)
        work.end = now
        # Released: each would keep all work before it.
        work.after = ()

    def _start(self, work: LaunchedWork) -> float:
        return max((work.launched, *(each.end for each in work.after)))


def size_class(count: int) -> int:
    return count.bit_length()
