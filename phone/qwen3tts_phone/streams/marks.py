"""What has been played at a far end that queues what we send: told by marks it sends back. Pure.

A mark goes after every few frames. It comes back when the far end has played what went before it,
so a returned mark is a fact, and what lies between two is reckoned by the clock, behind by the
*lag*: how much later than we thought the marks come back (the network both ways, and the queue).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

LAG_GAIN = 0.25
"""What a new mark weighs in the lag: a single late one does not move it far."""
MOST_LAG_S = 2.0
BEHIND_S = 0.1
"""A far end whose mark is overdue by so much, beyond its lag, has more queued than it should."""
LOST_S = 1.0
"""A mark overdue by so much will not come: it got lost, or the far end does not have marks."""
VAIN = 3
"""So many marks lost without one that ever came: there are none here."""
MOST_OUT = 64


@dataclass(frozen=True, slots=True)
class _Out:
    context: int
    position: int
    due_at: float


class Marks:
    """One stream's. Positions are samples of the context's rate, times seconds of the clock."""

    def __init__(self, every_s: float = 0.1) -> None:
        self.lag_s: float | None = None
        """How much later than reckoned marks come back; None = none has."""
        self.returned_marks = 0
        self.lost_marks = 0
        self._every_s = every_s
        self._out: OrderedDict[str, _Out] = OrderedDict()
        self._fact: tuple[int, int] = (0, 0)  # context, and its position that a mark has proved
        self._number = 0
        self._last: tuple[int, float] = (0, 0.0)  # context of the last mark, and its place

    @property
    def usable(self) -> bool:
        """Whether the far end may still be expected to send marks back."""
        return self.returned_marks > 0 or self.lost_marks < VAIN

    @property
    def out(self) -> int:
        """Marks under way."""
        return len(self._out)

    def wanted(self, context: int, due_at: float) -> bool:
        """Whether a mark should follow the frame that is played to its end at ``due_at``."""
        if not self.usable or len(self._out) >= MOST_OUT:
            return False
        last_context, last_at = self._last
        return context != last_context or due_at - last_at >= self._every_s - 1e-6

    def sent(self, context: int, position: int, due_at: float) -> str:
        """A mark goes out, after ``position``; its name. No two of a stream have the same."""
        self._number += 1
        name = f"q{self._number}"
        self._out[name] = _Out(context, position, due_at)
        self._last = (context, due_at)
        return name

    def is_marked(self, context: int, position: int) -> bool:
        """Whether a mark stands there already."""
        return any(
            each.context == context and each.position >= position for each in self._out.values()
        )

    def returned(self, name: str, now: float) -> bool:
        """A mark came back; False for one that is not under way (cleared, unknown, twice).

        Those before it have been passed as well.
        """
        if name not in self._out:
            return False
        while True:
            passed, mark = self._out.popitem(last=False)
            if passed == name:
                break
        self.returned_marks += 1
        self._fact = (mark.context, mark.position)
        lag = min(MOST_LAG_S, max(0.0, now - mark.due_at))
        self.lag_s = lag if self.lag_s is None else self.lag_s + LAG_GAIN * (lag - self.lag_s)
        return True

    def cut(self) -> None:
        """What was sent is thrown away: its marks prove nothing any more, whenever they come."""
        self._out.clear()
        self._last = (0, 0.0)

    def give_up(self, now: float) -> None:
        """Forget the marks that are overdue for good."""
        while self._out and now - next(iter(self._out.values())).due_at > self._lag_s() + LOST_S:
            self._out.popitem(last=False)
            self.lost_marks += 1

    def behind_until(self, now: float) -> float | None:
        """Until when nothing more should be sent, unless marks come; None = the far end keeps up.

        Only a far end that has sent marks before can be behind with them.
        """
        if self.lag_s is None or not self._out:
            return None
        due_at = next(iter(self._out.values())).due_at + self.lag_s
        return due_at + LOST_S + 0.001 if now > due_at + BEHIND_S else None

    def lost_at(self, context: int) -> float | None:
        """When the last mark of a context need not be waited for any more; None = none is out."""
        due = [each.due_at for each in self._out.values() if each.context == context]
        return max(due) + self._lag_s() + LOST_S if due else None

    def position(self, context: int, reckoned: int) -> int:
        """How much of a context has been played: what the clock reckons, within what is proved."""
        proved_context, proved = self._fact
        if context == proved_context:
            reckoned = max(reckoned, proved)
        if self.lag_s is not None:
            ahead = [each.position for each in self._out.values() if each.context == context]
            if ahead:
                reckoned = min(reckoned, ahead[0])
        return reckoned

    def _lag_s(self) -> float:
        return self.lag_s or 0.0
