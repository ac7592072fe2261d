"""Keys that a caller presses, gathered: a number is one message, not one for each digit (pure)."""

from __future__ import annotations

GAP_S = 2.0
"""A number is taken for complete so long after its last key; a person who reads one off a card
needs less between two."""
MAX_KEYS = 64
"""In one message."""


class Keys:
    """What has been pressed and not been told yet."""

    def __init__(self, gap_s: float = GAP_S) -> None:
        self._gap_s = gap_s
        self._pressed = ""
        self.deadline: float | None = None
        """When :meth:`due` has something to give; None: nothing was pressed."""

    def press(self, key: str, now: float) -> str:
        """One more key; what is complete with it (``#`` ends a number), else nothing."""
        self._pressed += key
        self.deadline = now + self._gap_s
        if key == "#" or len(self._pressed) >= MAX_KEYS:
            return self._take()
        return ""

    def due(self, now: float) -> str:
        """What is complete because no further key came; else nothing."""
        return self._take() if self.deadline is not None and now >= self.deadline else ""

    def _take(self) -> str:
        pressed, self._pressed, self.deadline = self._pressed, "", None
        return pressed
