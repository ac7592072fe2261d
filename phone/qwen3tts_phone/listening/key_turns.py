"""Pressed keys as turns: a number is complete with its last key, a pause, or as many as allowed."""

from __future__ import annotations

from dataclasses import dataclass

from qwen3tts_phone.listening.settings import ListenSettings


@dataclass(frozen=True, slots=True)
class Keys:
    """Some keys that belong together."""

    digits: str
    began_at: float
    ended_at: float


class KeyTurns:
    """One call's (pure). Times are seconds of the call's clock."""

    def __init__(self, settings: ListenSettings) -> None:
        self._settings = settings
        self._digits = ""
        self._began_at = 0.0
        self._ended_at = 0.0

    @property
    def waiting(self) -> bool:
        """Whether keys have been pressed that belong to no turn yet."""
        return bool(self._digits)

    def press(self, digit: str, at: float) -> Keys | None:
        """Take a key; the keys that are complete with it."""
        if not self._digits:
            self._began_at = at
        self._digits += digit
        self._ended_at = at
        until = self._settings.keys_until
        if (until and digit == until) or len(self._digits) >= self._settings.max_keys:
            return self.take()
        return None

    def due(self, now: float) -> Keys | None:
        """The keys that are complete because no other has come."""
        if self._digits and now - self._ended_at >= self._settings.keys_pause_ms / 1000:
            return self.take()
        return None

    def take(self) -> Keys | None:
        """All that there are, complete or not."""
        if not self._digits:
            return None
        keys = Keys(self._digits, self._began_at, self._ended_at)
        self._digits = ""
        return keys

    def restore(self, keys: Keys) -> None:
        """They belong to the turn that is open after all; more may follow them."""
        self._digits, self._began_at, self._ended_at = keys.digits, keys.began_at, keys.ended_at
