"""Watchdog of a server that owes audio (pure)."""

from __future__ import annotations

PENDING_TEXT_CHARS = 200
"""Text without an end of this length holds a whole sentence: the server owes audio."""


POLL_INTERVAL_S = 0.2
"""Longest time counted between two looks: where this process stalled, received audio lies unread.
"""


class StallWatchdog:
    """Timer of owed audio; poll it ten times a second."""

    def __init__(self, most_s: float | None) -> None:
        if most_s is not None and not most_s > 0:
            raise ValueError(f"stall_s={most_s} must be above 0")
        self.most_s = most_s
        self._sounds = -1
        self._last = 0.0
        self._waited_s = 0.0

    def restart(self) -> None:
        self._waited_s = 0.0

    def expired(self, now: float, *, owed: bool, sounds: int) -> bool:
        """Return whether the limit is reached.

        ``sounds``: samples received, which restart the count.
        """
        passed_s, self._last = min(now - self._last, POLL_INTERVAL_S), now
        if not owed or sounds != self._sounds:
            self._sounds, self._waited_s = sounds, 0.0
            return False
        self._waited_s += passed_s
        return self.most_s is not None and self._waited_s >= self.most_s
