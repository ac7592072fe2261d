"""A request of ours inside a dialog whose answer is wanted once, by a function."""

from __future__ import annotations

from collections.abc import Callable

from qwen3tts_phone.sip.message import Response
from qwen3tts_phone.sip.transaction import Failure

Told = Callable[[Response | Failure, float], None]
"""Gets the final answer, or why there is none, and the time."""


class Asked:
    """Hands the outcome on, once."""

    def __init__(self, told: Told) -> None:
        self._told: Told | None = told

    def on_provisional(self, response: Response, now: float) -> None:
        """Nothing to do: the far end takes its time."""

    def on_final(self, response: Response, now: float) -> None:
        """The answer."""
        self._tell(response, now)

    def on_failure(self, failure: Failure, now: float) -> None:
        """There is none."""
        self._tell(failure, now)

    def _tell(self, outcome: Response | Failure, now: float) -> None:
        told, self._told = self._told, None
        if told is not None:
            told(outcome, now)
