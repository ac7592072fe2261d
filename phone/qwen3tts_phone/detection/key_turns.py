"""Pressed keys as turns: a number is complete with its last key, a pause, or as many as allowed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from qwen3tts_phone.detection.settings import ListenSettings

TURN_GAP_S: Final = 0.4
"""Shortest time between two turns of keys: what is complete earlier is joined to one turn. Each may
cost a request to a language model, and a machine presses thousands of keys a second."""
WAITING_KEYS: Final = 64
"""Keys that wait for the next turn; where ``max_keys`` is more, that many."""


@dataclass(frozen=True, slots=True)
class KeyGroup:
    """Some keys that belong together."""

    digits: str
    began_at: float
    ended_at: float


class KeyTurns:
    """One call's (pure). Times are seconds of the call's clock."""

    def __init__(self, settings: ListenSettings) -> None:
        self.dropped = 0
        """Keys that came while too many waited."""
        self._settings = settings
        self._pressed: list[tuple[str, float]] = []
        self._taken: list[tuple[str, float]] = []
        """Keys of the last turn."""
        self._taken_at = -math.inf

    @property
    def waiting(self) -> bool:
        """Whether keys have been pressed that belong to no turn yet."""
        return bool(self._pressed)

    @property
    def complete(self) -> bool:
        """Whether a turn of these is complete, and waits for `TURN_GAP_S` at most."""
        return self._complete_keys() > 0

    @property
    def deadline(self) -> float | None:
        """When :meth:`due` has a turn to give; None: no key waits."""
        if not self._pressed:
            return None
        earliest = self._taken_at + TURN_GAP_S
        if self.complete:
            return earliest
        return max(earliest, self._pressed[-1][1] + self._settings.keys_pause_ms / 1000)

    def press(self, digit: str, at: float) -> KeyGroup | None:
        """Take a key; the keys that are complete with it."""
        if len(self._pressed) >= max(WAITING_KEYS, self._settings.max_keys):
            self.dropped += 1
            return None
        self._pressed.append((digit, at))
        return self.due(at) if self.complete else None

    def due(self, now: float) -> KeyGroup | None:
        """The keys that are complete because no other has come, or because turns were too close."""
        deadline = self.deadline
        if deadline is None or now < deadline:
            return None
        return self._take(self._complete_keys() or len(self._pressed), now)

    def take(self, now: float) -> KeyGroup | None:
        """All that there are, complete or not, up to ``max_keys``."""
        return self._take(len(self._pressed), now)

    def restore(self) -> None:
        """The last keys taken belong to the turn that is open after all."""
        self._pressed[:0], self._taken = self._taken, []

    def _complete_keys(self) -> int:
        most, until = self._settings.max_keys, self._settings.keys_until
        for number in range(min(most, len(self._pressed)), 0, -1):
            if number == most or (until and self._pressed[number - 1][0] == until):
                return number
        return 0

    def _take(self, count: int, now: float) -> KeyGroup | None:
        count = min(count, self._settings.max_keys)
        if not count:
            return None
        self._taken, self._pressed = self._pressed[:count], self._pressed[count:]
        self._taken_at = now
        digits = "".join(digit for digit, _ in self._taken)
        return KeyGroup(digits, self._taken[0][1], self._taken[-1][1])
