"""Call admission by the load reports of the media loop (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from qwen3tts_phone.media.reports import MediaLoad

LEAST_CALLS = 50
"""Calls that are always admitted: a machine that cannot pace so few is busy with something else."""
SKIPPED_MOST = 0.001
"""Share of slots unsent, above which a report is bad."""
LATE_MOST = 0.02
"""Share of slots more than 5 ms late, above which a report is bad."""
BUSY_MOST = 0.85
"""Share of one processor used by the loop, above which further calls have gaps."""
LATE_CALM, BUSY_CALM = 0.005, 0.75
"""Bounds of a good report, with nothing skipped."""
BAD_REPORTS = 2
"""Bad reports in a row after which no call is admitted."""
GOOD_REPORTS = 5
"""Good ones after which calls are admitted again, up to `BACK_TO` of the number that was too much.
"""
LONG_REPORTS = 60
"""Good ones after which that number is forgotten: another program may have been the cause."""
BACK_TO = 0.9


class Pacing(Enum):
    """State of the loop."""

    CALM = "calm"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class PacingShares:
    """Shares of the slots, and of the time, between two reports."""

    calls: int = 0
    late: float = 0.0
    skipped: float = 0.0
    busy: float = 0.0

    @classmethod
    def between(cls, before: MediaLoad, after: MediaLoad) -> PacingShares:
        skipped = after.skipped - before.skipped
        slots = max(1, after.slots - before.slots + skipped)
        spent_ns = max(1, after.at_ns - before.at_ns)
        return cls(
            after.calls,
            (after.late - before.late) / slots,
            skipped / slots,
            (after.cpu_ns - before.cpu_ns) / spent_ns,
        )


class PacingAdmission:
    """Closes when the loop falls behind, and opens when it is calm.

    Args:
        least_calls: calls that are always admitted; 0 = `LEAST_CALLS`.
        late_most: share of late slots above which a report is bad.
    """

    def __init__(self, least_calls: int = 0, late_most: float = LATE_MOST) -> None:
        self._least_calls = least_calls or LEAST_CALLS
        self._late_most = late_most
        self.state = Pacing.CALM
        self.shares = PacingShares()
        self.calls_most = 0
        """Number of calls that was too much; 0 = none."""
        self._before: MediaLoad | None = None
        self._bad = 0
        self._good = 0

    def report(self, load: MediaLoad) -> bool:
        before, self._before = self._before, load
        if before is None or load.at_ns <= before.at_ns:  # the first one, or of another process
            self._bad = self._good = 0
            return False
        self.shares = shares = PacingShares.between(before, load)
        self._bad = self._bad + 1 if self._is_bad(shares) else 0
        self._good = self._good + 1 if _is_good(shares) else 0
        if (
            self.state is Pacing.CALM
            and self._bad >= BAD_REPORTS
            and load.calls >= self._least_calls
        ):
            self.state, self.calls_most = Pacing.FULL, load.calls
            return True
        if self._good >= LONG_REPORTS:
            self.calls_most = 0
        if self.state is Pacing.FULL and self._good >= GOOD_REPORTS and self._has_room(load.calls):
            self.state = Pacing.CALM
            return True
        return False

    def admits(self, calls: int) -> bool:
        return calls < self._least_calls or (self.state is Pacing.CALM and self._has_room(calls))

    def _is_bad(self, shares: PacingShares) -> bool:
        late = shares.late > self._late_most
        return late or shares.skipped > SKIPPED_MOST or shares.busy > BUSY_MOST

    def _has_room(self, calls: int) -> bool:
        return not self.calls_most or calls < BACK_TO * self.calls_most

    @property
    def figures(self) -> str:
        shares = self.shares
        return (
            f"{shares.calls} calls: {shares.busy:.0%} of a processor for pacing, {shares.late:.1%} "
            f"of the packets late, {shares.skipped:.2%} skipped"
        )


def _is_good(shares: PacingShares) -> bool:
    return not shares.skipped and shares.late <= LATE_CALM and shares.busy <= BUSY_CALM
