"""What has been played at a far end that queues what we send: told by marks it sends back. Pure.

A mark goes after every few frames. It comes back when the far end has played what went before it,
so a returned mark is a fact, and what lies between two is reckoned by the clock, behind by the
*lag*: how much later than we thought the marks come back (the network both ways, and the queue).

The least lag of a call is the way itself. What is unplayed beyond it lies at the far end, or is
stuck on the way there, and will lie at the far end as soon as the way is free: it is kept short.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass

LAG_GAIN = 0.25
"""What a new mark weighs in the lag: a single late one does not move it far."""
MAX_LAG_S = 2.0
SLACK_S = 0.06
"""So much more than the lead may be unplayed: the way is not always equally long."""
MAX_QUEUED_S = 0.4
"""Never more than this at the far end."""
MIN_LEAD_S = 0.2
"""So far ahead it is sent on the longest way: else each unevenness would be heard."""
LOST_S = 1.0
"""A mark overdue by so much will not come: it got lost, or the far end does not have marks."""
STALL_S = 4.0
"""Where nothing else comes either, it is the network that stalls: so long it is waited for."""
MAX_LOST_IN_A_ROW = 3
"""So many marks lost one after the other: there are none here, or none any more."""
MAX_PENDING_MARKS = 64


@dataclass(frozen=True, slots=True)
class _PendingMark:
    context: int
    position: int
    due_at: float
    sent_s: float
    """All sound that was sent before it, seconds."""


class PlayoutMarks:
    """One stream's. Positions are samples of the context's rate, times seconds of the clock.

    Args:
        every_s: how much is sent between two.
        frame_s: duration of a frame.
    """

    def __init__(self, every_s: float = 0.1, frame_s: float = 0.02) -> None:
        self.lag_s: float | None = None
        """How much later than reckoned marks come back; None = none has."""
        self.returned_marks = 0
        self.lost_marks = 0
        self._lost_in_a_row = 0
        self._least_lag_s = 0.0
        self._every_s = every_s
        self._frame_s = frame_s
        self._sent_s = 0.0
        self._played: tuple[float, float] = (0.0, 0.0)  # seconds of sound, and when that was known
        self._alive_at: float | None = None
        self._out: OrderedDict[str, _PendingMark] = OrderedDict()
        self._fact: tuple[int, int] = (0, 0)  # context, and its position that a mark has proved
        self._given_up: deque[str] = deque(maxlen=MAX_PENDING_MARKS)
        self._number = 0
        self._last: tuple[int, float] = (0, 0.0)  # context of the last mark, and its place

    @property
    def usable(self) -> bool:
        """Whether the far end may still be expected to send marks back."""
        return self._lost_in_a_row < MAX_LOST_IN_A_ROW

    @property
    def out(self) -> int:
        """Marks under way."""
        return len(self._out)

    def wanted(self, context: int, due_at: float) -> bool:
        """Whether a mark should follow the frame that is played to its end at ``due_at``."""
        if not self.usable or len(self._out) >= MAX_PENDING_MARKS:
            return False
        last_context, last_at = self._last
        return context != last_context or due_at - last_at >= self._every_s - 1e-6

    def sound(self) -> None:
        """A frame goes out."""
        self._sent_s += self._frame_s

    def alive(self, now: float) -> None:
        """Something came from the far end, whatever it is."""
        self._alive_at = now

    def sent(self, context: int, position: int, due_at: float) -> str:
        """A mark goes out, after ``position``; its name. No two of a stream have the same."""
        self._number += 1
        name = f"q{self._number}"
        self._out[name] = _PendingMark(context, position, due_at, self._sent_s)
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
        if name in self._given_up:
            self._lost_in_a_row = 0  # late, so there are marks here
        if name not in self._out:
            return False
        while True:
            passed, mark = self._out.popitem(last=False)
            if passed == name:
                break
        self._fact = (mark.context, mark.position)
        self._played = (mark.sent_s, now)
        self._lost_in_a_row = 0
        lag = min(MAX_LAG_S, max(0.0, now - mark.due_at))
        self._least_lag_s = min(lag, self._least_lag_s) if self.returned_marks else lag
        self.returned_marks += 1
        self.lag_s = lag if self.lag_s is None else self.lag_s + LAG_GAIN * (lag - self.lag_s)
        return True

    def cut(self, now: float) -> None:
        """What was sent is thrown away: its marks prove nothing any more, whenever they come."""
        self._out.clear()
        self._last = (0, 0.0)
        self._played = (self._sent_s, now)

    def give_up(self, now: float) -> None:
        """Forget the marks that are overdue for good."""
        while self._out and now >= self._given_up_at(next(iter(self._out.values()))):
            self._given_up.append(self._out.popitem(last=False)[0])
            self.lost_marks += 1
            self._lost_in_a_row += 1

    def full_until(self, now: float, lead_s: float) -> float | None:
        """Until when no frame should be sent, unless marks come; None = one may go out now.

        ``lead_s``: how far ahead of the hearing frames are sent. Only a far end that has sent marks
        before can be known to be behind.
        """
        if self.lag_s is None or not self.usable:
            return None
        # What the way holds in itself may all lie at the far end after a stall.
        room_s = MAX_QUEUED_S - self._frame_s - self._least_lag_s
        ahead_s = min(lead_s + SLACK_S, max(room_s, min(lead_s, MIN_LEAD_S)))
        most_s = self._least_lag_s + ahead_s
        played_s, known_at = self._played
        free_at = known_at + self._sent_s - played_s - most_s  # if it plays on as it should
        oldest = next(iter(self._out.values()), None)
        if oldest is not None and self._sent_s - oldest.sent_s > most_s + 1e-6:
            # Only its coming back would prove that there is room.
            return max(free_at, self._given_up_at(oldest))
        return free_at if free_at > now + 1e-6 else None

    def lost_at(self, context: int) -> float | None:
        """When the last mark of a context need not be waited for any more; None = none is out."""
        out = [each for each in self._out.values() if each.context == context]
        return max(self._given_up_at(each) for each in out) if out else None

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

    def _given_up_at(self, mark: _PendingMark) -> float:
        expected_at = mark.due_at + (self.lag_s or 0.0)
        silent = self._alive_at is not None and self._alive_at < expected_at
        return expected_at + (STALL_S if silent and self.returned_marks else LOST_S)
