"""Pressed keys as turns, complete with a last key, a pause, or the most keys."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from qwen3tts_phone.detection.settings import ListenSettings

TURN_GAP_S: Final = 0.4
"""Shortest time between two turns of keys: what is complete earlier is joined to one turn. Each may
cost a request to a language model, and a machine presses thousands of keys a second.
"""
WAITING_KEYS: Final = 64
"""Keys that wait for the next turn; where ``max_keys`` is more, that many."""


@dataclass(frozen=True, slots=True)
class KeyGroup:
    """Keys of one turn."""

    digits: str
    began_at: float
    ended_at: float


class KeyTurns:
    """Keys of one call (pure); times are seconds of the call's clock."""

    def __init__(self, settings: ListenSettings) -> None:
        self.dropped = 0
        """Keys dropped while too many waited."""
        self._settings = settings
        self._pressed: list[tuple[str, float]] = []
        self._taken: list[tuple[str, float]] = []
        """Keys of the last turn."""
        self._taken_at = -math.inf

    @property
    def waiting(self) -> bool:
        return bool(self._pressed)

    @property
    def complete(self) -> bool:
        return self._complete_keys() > 0

    @property
    def deadline(self) -> float | None:
        if not self._pressed:
            return None
        earliest = self._taken_at + TURN_GAP_S
        if self.complete:
            return earliest
        return max(earliest, self._pressed[-1][1] + self._settings.keys_pause_ms / 1000)

    def press(self, digit: str, at: float) -> KeyGroup | None:
        if len(self._pressed) >= max(WAITING_KEYS, self._settings.max_keys):
            self.dropped += 1
            return None
        self._pressed.append((digit, at))
        return self.due(at) if self.complete else None

    def due(self, now: float) -> KeyGroup | None:
        deadline = self.deadline
        if deadline is None or now < deadline:
            return None
        return self._take(self._complete_keys() or len(self._pressed), now)

    def take(self, now: float) -> KeyGroup | None:
        return self._take(len(self._pressed), now)

    def restore(self) -> None:
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
