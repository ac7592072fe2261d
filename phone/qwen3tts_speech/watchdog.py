"""How long a caller hears nothing before the server is taken for dead. Pure."""

from __future__ import annotations

OWED_CHARS = 200
"""So much text without an end holds a whole sentence: a server that has it owes sound."""


LOOK_S = 0.2
"""So much passes between two looks at most, to count: where this process stood still longer, what
the server sent meanwhile lies unread, and that is not its fault."""


class Patience:
    """Counts the time during which sound is owed and none comes; is to look ten times a second."""

    def __init__(self, most_s: float | None) -> None:
        """``most_s``: so many seconds; None is for ever. ValueError for what is no time."""
        if most_s is not None and not most_s > 0:
            raise ValueError(f"stall_s={most_s} must be above 0")
        self.most_s = most_s
        self._sounds = -1
        self._last = 0.0
        self._waited_s = 0.0

    def renew(self) -> None:
        """Start again: another server has the utterance."""
        self._waited_s = 0.0

    def spent(self, now: float, *, owed: bool, sounds: int) -> bool:
        """Whether it is at its end. ``sounds``: samples that have come, which begin it anew."""
        passed_s, self._last = min(now - self._last, LOOK_S), now
        if not owed or sounds != self._sounds:
            self._sounds, self._waited_s = sounds, 0.0
            return False
        self._waited_s += passed_s
        return self.most_s is not None and self._waited_s >= self.most_s
