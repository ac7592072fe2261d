"""Playout lead of one context: sound made and not yet played.

Two threads share it without a lock, each the only writer of its part: engine (``made``) and session
(``sent``, ``report``). Positions are samples at SAMPLE_RATE, times monotonic seconds. Between
reports the listener is assumed to play at the clock's rate while it has sound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

SAMPLE_RATE = 24_000
"""Rate of all engines' samples, hertz (the same number as base.SAMPLE_RATE)."""
UNPACED_LEAD_MS = 3_600_000.0
"""``lead_ms`` of a context whose client takes sound as fast as it is made: a file, a download."""
UNPACED_SPARE_S = 1.0
"""Seconds by which such a client counts as better supplied than it is: a call that has less than
this to play goes before the first sound of a download."""
MOVED_S = 0.04
"""A report that finds the listener this much elsewhere is worth waking the engine for."""


class _Listener(NamedTuple):
    """Immutable listener state, replaced as a whole for consistent reads."""

    position: float = 0.0
    """Samples played at ``at``."""
    at: float = 0.0
    moving: bool = True
    """True if it plays what it has."""
    sent: int = 0
    """Samples on the way to it or there."""

    def position_at(self, now: float) -> float:
        if not self.moving:
            return self.position
        passed = max(0.0, now - self.at) * SAMPLE_RATE
        return min(max(self.position, self.sent), self.position + passed)


class PlayoutLead:
    """Lead of one context.

    Args:
        target_ms: sound to make ahead of the listener (``lead_ms`` of ``context.open``); None: the
            engine's setting.
    """

    def __init__(self, target_ms: float | None = None) -> None:
        self.target_ms = target_ms
        self.on_change: Callable[[], None] | None = None
        """Called by ``report`` when the listener stopped, went on, or is not where it was thought
        to be: an engine that waits must reckon again. Set by the engine, called by the session's
        thread."""
        self._made = 0
        self._listener = _Listener()

    # --- the engine's thread ---

    def made(self, samples: int) -> None:
        self._made += samples

    # --- the session's thread ---

    def sent(self, samples: int, now: float) -> None:
        old = self._listener
        self._listener = old._replace(
            position=old.position_at(now), at=now, sent=old.sent + samples
        )

    def report(self, played: int, playing: bool, now: float) -> None:
        """Set what was played in all, and whether it plays or is held."""
        old = self._listener
        played = min(max(0, played), old.sent)
        self._listener = old._replace(position=played, at=now, moving=playing)
        moved = abs(old.position_at(now) - played) > MOVED_S * SAMPLE_RATE
        if (moved or playing != old.moving) and self.on_change is not None:
            self.on_change()

    # --- either ---

    @property
    def unpaced(self) -> bool:
        return self.target_ms is not None and self.target_ms >= UNPACED_LEAD_MS

    @property
    def started(self) -> bool:
        return self._made > 0

    @property
    def made_samples(self) -> int:
        return self._made

    @property
    def moving(self) -> bool:
        return self._listener.moving

    def played(self, now: float) -> int:
        return int(self._listener.position_at(now))

    def seconds(self, now: float) -> float:
        return max(0.0, self._made - self._listener.position_at(now)) / SAMPLE_RATE

    def urgency(self, now: float) -> float:
        return self.seconds(now) + (UNPACED_SPARE_S if self.unpaced else 0.0)

    def falls_to(self, seconds: float, now: float) -> float | None:
        """Return when the lead falls to ``seconds`` if nothing is made; None: held."""
        spare = self.seconds(now) - seconds
        if spare <= 0:
            return now
        return now + spare if self.moving else None
