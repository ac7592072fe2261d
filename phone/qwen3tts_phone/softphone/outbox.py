"""What waits to be sent to a page: bounded, whatever the page's network does (pure)."""

from __future__ import annotations

from collections import deque

from qwen3tts_phone.softphone.protocol import (
    Caller,
    Calls,
    Heard,
    Line,
    ServerMessage,
    Utterance,
)

MOST_WAITING = 1_000
"""A page for which more than that waits is too slow to go on with."""
LATEST = (Caller, Calls, Heard, Line, Utterance)
"""Of these only the newest counts: it takes the place of an older one that still waits. An
utterance's text is whole each time, and positions only grow."""


class Outbox:
    """Messages in their order, those that are out of date left out."""

    def __init__(self) -> None:
        self._order: deque[tuple[int, ServerMessage]] = deque()
        self._latest: dict[tuple[str, int], int] = {}
        """Number of the newest of a kind (and utterance) that waits."""
        self._number = 0

    def __len__(self) -> int:
        return len(self._order)

    def put(self, message: ServerMessage) -> bool:
        """One more; False = so many wait that the page should be given up."""
        self._number += 1
        if isinstance(message, LATEST):
            self._latest[_key(message)] = self._number
        self._order.append((self._number, message))
        if len(self._order) > MOST_WAITING:
            self._tidy()
        return len(self._order) <= MOST_WAITING

    def put_first(self, message: ServerMessage) -> None:
        """One that goes before all that waits, such as the answer to a hello."""
        self._order.appendleft((0, message))

    def take(self) -> ServerMessage | None:
        """The next one; None = nothing waits."""
        while self._order:
            number, message = self._order.popleft()
            if self._stands(number, message):
                if isinstance(message, LATEST):
                    self._latest.pop(_key(message), None)
                return message
        return None

    def _stands(self, number: int, message: ServerMessage) -> bool:
        return not isinstance(message, LATEST) or self._latest.get(_key(message)) == number

    def _tidy(self) -> None:
        self._order = deque(each for each in self._order if self._stands(*each))


def _key(message: ServerMessage) -> tuple[str, int]:
    return message.type, message.id if isinstance(message, Heard | Utterance) else 0
