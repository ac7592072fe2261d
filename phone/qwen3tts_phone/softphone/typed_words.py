"""Words as they are typed: a source that an utterance takes its text from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from qwen3tts_wire.errors import BadRequest, LimitExceeded


class TypedWords:
    """An asynchronous iterator of the words of one typed utterance; for one reader.

    Args:
        number: the page's number of the utterance.
        most_chars: no more than that is taken.
    """

    def __init__(self, number: int, most_chars: int) -> None:
        self.number = number
        self.ended = False
        """Whether no more will come."""
        self._most = most_chars
        self._chars = 0
        self._waiting: list[str] = []
        self._news = asyncio.Event()

    def put(self, text: str) -> None:
        """More words.

        Raises:
            LimitExceeded: it would be too long; nothing of this is taken.
            BadRequest: it has ended.
        """
        if self.ended:
            raise BadRequest("This utterance has ended.", remedy="Begin another one.")
        if self._chars + len(text) > self._most:
            raise LimitExceeded(
                f"An utterance has at most {self._most} characters.",
                remedy="End it and begin another one.",
            )
        if text:
            self._chars += len(text)
            self._waiting.append(text)
            self._news.set()

    def end(self) -> None:
        """No more words; harmless a second time."""
        self.ended = True
        self._news.set()

    def take(self) -> str:
        """What waits and was not taken yet: it is taken with this."""
        text = "".join(self._waiting)
        self._waiting.clear()
        return text

    async def __aiter__(self) -> AsyncIterator[str]:
        while True:
            if text := self.take():
                yield text
            elif self.ended:
                return
            else:
                self._news.clear()
                await self._news.wait()
