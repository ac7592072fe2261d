"""How long a caller hears nothing before the server is taken for dead. Pure."""

from __future__ import annotations

OWED_CHARS = 200
"""So much text without an end holds a whole sentence: a server that has it owes sound."""


class Patience:
    """Counts the time during which sound is owed and none comes."""

    def __init__(self, most_s: float | None) -> None:
        """``most_s``: so many seconds; None is for ever. ValueError for what is no time."""
        if most_s is not None and not most_s > 0:
            raise ValueError(f"stall_s={most_s} must be above 0")
        self.most_s = most_s
        self._sounds = -1
        self._since = 0.0

    def spent(self, now: float, *, owed: bool, sounds: int) -> bool:
        """Whether it is at its end. ``sounds``: samples that have come, which begin it anew."""
        if not owed or sounds != self._sounds:
            self._sounds, self._since = sounds, now
            return False
        return self.most_s is not None and now - self._since >= self.most_s
