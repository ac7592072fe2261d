"""Whether new calls are set up, by how long messages wait before they are read (pure).

Above what this process can set up, messages pile up in the socket until the kernel drops them:
callers get no answer, repeat themselves, and make it worse. So while the queue does not empty any
more (its least wait is what tells, as in CoDel, RFC 8289), an INVITE gets a short answer, 503 with
Retry-After (RFC 3261 section 21.5.4). A socket buffer of the common size (net.core.rmem_max of
212,992) holds 100 to 185 INVITEs, which are read sooner than that wait: there it is the kernel's
count of dropped datagrams that tells.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum

log = logging.getLogger(__name__)

WAIT_MOST_S = 0.4
"""The message of a window that waited least has waited longer: the queue never emptied, and callers
are about to repeat what they sent (T1 is 0.5 s, RFC 3261 section 17.1.1.1)."""
WAIT_CALM_S = 0.02
"""It has waited no longer than this: the queue was empty for a moment."""
WINDOW_S = 0.25
BEHIND_WINDOWS = 6
"""So many windows in a row in which the queue never emptied, and new calls are refused: it is no
burst of calls, and no single stall of this process."""
CALM_WINDOWS = 2
"""So many in a row in which it did, or nothing came, and calls are set up again."""
BUSY_S = 10
"""Callers may come again after so many seconds."""


class Setup(Enum):
    """What an INVITE gets."""

    OPEN = "open"
    SHEDDING = "shedding"


class SetupOverload:
    """One endpoint's. Times are seconds of its clock."""

    def __init__(self) -> None:
        self.state = Setup.OPEN
        self.shed = 0
        """Calls that were refused."""
        self._until = 0.0  # the end of the window
        self._least_s: float | None = None  # of the window; None = no message came
        self._lost = 0  # in the window
        self._behind = 0
        self._calm = 0

    def waited(self, wait_s: float, now: float, lost: int = 0) -> bool:
        """A message was read ``wait_s`` after it had come; True = the state has changed by it.

        ``lost``: messages before it that the kernel dropped.
        """
        before = self.state
        self._pass(now)
        self._lost += lost
        self._least_s = wait_s if self._least_s is None else min(self._least_s, wait_s)
        return self.state is not before

    def admits(self, now: float) -> bool:
        """Whether a call is set up now; one that is not is counted."""
        self._pass(now)
        if self.state is Setup.OPEN:
            return True
        self.shed += 1
        return False

    def _pass(self, now: float) -> None:
        """Close the windows that are over."""
        if now < self._until:
            return
        empty = int((now - self._until) / WINDOW_S)
        least_s, self._least_s = self._least_s, None
        # The kernel counts wrong checksums too; only a queue that does not empty drops others.
        most_s = WAIT_CALM_S if self._lost else WAIT_MOST_S
        self._lost = 0
        self._until = now + WINDOW_S
        self._behind = self._behind + 1 if least_s is not None and least_s > most_s else 0
        self._calm = self._calm + 1 if least_s is None or least_s <= WAIT_CALM_S else 0
        if empty:
            self._behind = 0
            self._calm += empty
        if self._behind >= BEHIND_WINDOWS:
            self.state = Setup.SHEDDING
        elif self._calm >= CALM_WINDOWS:
            self.state = Setup.OPEN


class CallRoom:
    """Whether an endpoint has room for another call: what `Agent.busy` asks.

    Args:
        now: the clock.
        full: whether something else has no room.
    """

    def __init__(self, now: Callable[[], float], full: Callable[[], bool]) -> None:
        self.overload = SetupOverload()
        self._now = now
        self._full = full

    def waited(self, wait_s: float, lost: int) -> None:
        """Take the seconds that a datagram has waited, and how many before it were dropped."""
        if not self.overload.waited(wait_s, self._now(), lost):
            return
        if self.overload.state is Setup.SHEDDING:
            log.warning("more calls come than can be set up: new ones get 503 for a while")
        else:
            log.info("calls are set up again; %d were refused so far", self.overload.shed)

    def busy_s(self) -> int:
        """Seconds after which callers may come again; 0 = there is room."""
        return BUSY_S if self._full() or not self.overload.admits(self._now()) else 0
