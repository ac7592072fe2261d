"""Playout position at a far end that queues audio, by returned marks (pure).

A mark returns when all before it was played. Between marks the position is interpolated by the
clock, minus their *lag*. A call's smallest lag is the network's delay; what is unplayed beyond it
is queued, and kept short.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass

LAG_GAIN = 0.25
"""Weight of a new mark in the lag (exponential moving average)."""
MAX_LAG_S = 2.0
SLACK_S = 0.06
"""Jitter allowance of unplayed audio beyond the lead."""
MAX_QUEUED_S = 0.4
MIN_LEAD_S = 0.2
"""Smallest lead, also on a slow network: below it jitter would be heard as underruns."""
LOST_S = 1.0
"""A mark overdue by this time counts as lost."""
STALL_S = 4.0
"""The same where no message comes at all: the network has stalled."""
MAX_LOST_IN_A_ROW = 3
"""Consecutive lost marks after which the far end counts as one without marks."""
MAX_PENDING_MARKS = 64


@dataclass(frozen=True, slots=True)
class _PendingMark:
    context: int
    position: int
    due_at: float
    sent_s: float


class PlayoutMarks:
    """Marks of one stream; positions are samples of the context's rate.

    Args:
        every_s: audio between two marks.
        frame_s: duration of a frame.
    """

    def __init__(self, every_s: float = 0.1, frame_s: float = 0.02) -> None:
        self.lag_s: float | None = None
        """Delay of returned marks; None = none has returned."""
        self.returned_marks = 0
        self.lost_marks = 0
        self._lost_in_a_row = 0
        self._least_lag_s = 0.0
        self._every_s = every_s
        self._frame_s = frame_s
        self._sent_s = 0.0
        self._played: tuple[float, float] = (0.0, 0.0)  # seconds of audio, and when that was known
        self._alive_at: float | None = None
        self._pending: OrderedDict[str, _PendingMark] = OrderedDict()
        self._confirmed: tuple[int, int] = (0, 0)  # context, and its position confirmed by a mark
        self._lost_names: deque[str] = deque(maxlen=MAX_PENDING_MARKS)
        self._number = 0
        self._last: tuple[int, float] = (0, 0.0)  # context of the last mark, and its time

    @property
    def usable(self) -> bool:
        return self._lost_in_a_row < MAX_LOST_IN_A_ROW

    @property
    def out(self) -> int:
        return len(self._pending)

    def wanted(self, context: int, due_at: float) -> bool:
        if not self.usable or len(self._pending) >= MAX_PENDING_MARKS:
            return False
        last_context, last_at = self._last
        return context != last_context or due_at - last_at >= self._every_s - 1e-6

    def sound(self) -> None:
        self._sent_s += self._frame_s

    def alive(self, now: float) -> None:
        self._alive_at = now

    def sent(self, context: int, position: int, due_at: float) -> str:
        self._number += 1
        name = f"q{self._number}"
        self._pending[name] = _PendingMark(context, position, due_at, self._sent_s)
        self._last = (context, due_at)
        return name

    def is_marked(self, context: int, position: int) -> bool:
        return any(
            each.context == context and each.position >= position for each in self._pending.values()
        )

    def returned(self, name: str, now: float) -> bool:
        """Note a returned mark and those before it; False if not pending."""
        if name in self._lost_names:
            self._lost_in_a_row = 0  # late, but the far end returns marks
        if name not in self._pending:
            return False
        while True:
            passed, mark = self._pending.popitem(last=False)
            if passed == name:
                break
        self._confirmed = (mark.context, mark.position)
        self._played = (mark.sent_s, now)
        self._lost_in_a_row = 0
        lag = min(MAX_LAG_S, max(0.0, now - mark.due_at))
        self._least_lag_s = min(lag, self._least_lag_s) if self.returned_marks else lag
        self.returned_marks += 1
        self.lag_s = lag if self.lag_s is None else self.lag_s + LAG_GAIN * (lag - self.lag_s)
        return True

    def cut(self, now: float) -> None:
        self._pending.clear()
        self._last = (0, 0.0)
        self._played = (self._sent_s, now)

    def give_up(self, now: float) -> None:
        while self._pending and now >= self._lost_time(next(iter(self._pending.values()))):
            self._lost_names.append(self._pending.popitem(last=False)[0])
            self.lost_marks += 1
            self._lost_in_a_row += 1

    def full_until(self, now: float, lead_s: float) -> float | None:
        """Return until when sending must pause, unless marks come; None: send.

        ``lead_s``: lead of sending before playout. Only a far end that has returned marks can be
        known to lag.
        """
        if self.lag_s is None or not self.usable:
            return None
        # After a stall, all that is in the network may be queued at the far end.
        room_s = MAX_QUEUED_S - self._frame_s - self._least_lag_s
        ahead_s = min(lead_s + SLACK_S, max(room_s, min(lead_s, MIN_LEAD_S)))
        most_s = self._least_lag_s + ahead_s
        played_s, known_at = self._played
        free_at = known_at + self._sent_s - played_s - most_s  # if playout continues
        oldest = next(iter(self._pending.values()), None)
        if oldest is not None and self._sent_s - oldest.sent_s > most_s + 1e-6:
            # Only its return would confirm that there is room.
            return max(free_at, self._lost_time(oldest))
        return free_at if free_at > now + 1e-6 else None

    def lost_at(self, context: int) -> float | None:
        out = [each for each in self._pending.values() if each.context == context]
        return max(self._lost_time(each) for each in out) if out else None

    def position(self, context: int, estimated: int) -> int:
        confirmed_context, confirmed = self._confirmed
        if context == confirmed_context:
            estimated = max(estimated, confirmed)
        if self.lag_s is not None:
            ahead = [each.position for each in self._pending.values() if each.context == context]
            if ahead:
                estimated = min(estimated, ahead[0])
        return estimated

    def _lost_time(self, mark: _PendingMark) -> float:
        expected_at = mark.due_at + (self.lag_s or 0.0)
        silent = self._alive_at is not None and self._alive_at < expected_at
        return expected_at + (STALL_S if silent and self.returned_marks else LOST_S)
