"""Resuming contexts after a lost connection: when to reconnect, and the text to send again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

from qwen3tts_text.growing import GrowingText
from qwen3tts_text.surrogates import SurrogateJoiner, clean
from qwen3tts_wire.addresses import check_address
from qwen3tts_wire.errors import BadRequest, LimitExceeded
from qwen3tts_wire.states import CLIENT, ContextState, move


@dataclass(frozen=True)
class Resume:
    """How a client reconnects after a lost connection. Raises ValueError for an invalid setting."""

    within_s: float = 10.0
    """Time to reconnect; then the contexts end with ConnectionLost."""
    first_wait_s: float = 0.05
    """Between the first attempt, made immediately, and the second."""
    max_wait_s: float = 1.0
    """Between two attempts at most; each wait is twice the one before."""
    fruitless: int = 3
    """Attempts without a sample after which a context ends: its
    text may be what breaks the servers."""
    elsewhere: tuple[str, ...] = ()
    """Further addresses that are tried after the client's own: other servers, which go on too."""

    def __post_init__(self) -> None:
        for url in self.elsewhere:
            check_address(url)
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name != "elsewhere" and (not math.isfinite(value) or value <= 0):
                raise ValueError(f"{each.name}={value} must be above 0")

    def waits(self, random: Callable[[], float]) -> Iterator[float]:
        """Yield the waits between attempts, in seconds, without end.

        Each is shortened by up to a half (``random`` gives 0 to 1), so that clients of a dead
        server do not all reconnect at the same moment.
        """
        wait = self.first_wait_s
        while True:
            yield min(wait, self.max_wait_s) * (1 - 0.5 * random())
            wait = min(2 * wait, self.max_wait_s)


class ReplayBuffer:
    """Text of a context with its flushes and its end, to send again. Positions are code points."""

    def __init__(self) -> None:
        self._text = GrowingText()
        self._joiner = SurrogateJoiner()
        self._flushes: list[int] = []
        self.ended = False
        """Whether no more text follows."""

    def __str__(self) -> str:
        return str(self._text)

    def __len__(self) -> int:
        return len(self._text)

    @property
    def state(self) -> ContextState:
        return ContextState.ENDING if self.ended else ContextState.OPEN

    def add(self, text: str, most: int) -> str:
        """Append text, with surrogates joined; return what became certain.

        Raises:
            BadRequest: it is not text.
            LimitExceeded: there would be more than ``most`` code points; nothing of it is kept.
            ProtocolError: the text has ended.
        """
        if not isinstance(text, str):
            raise BadRequest(f"Text must be a str, not {type(text).__name__}.")
        move(CLIENT, self.state, "text.append")
        if len(self) + len(clean(text)) > most:
            raise LimitExceeded(
                f"A context holds at most {most} characters of text.",
                remedy="End it and go on in another one.",
            )
        joined = self._joiner.push(text)
        self._text.add(joined)
        return joined

    def flush(self) -> None:
        move(CLIENT, self.state, "text.flush")
        if not self._flushes or self._flushes[-1] != len(self):
            self._flushes.append(len(self))

    def end(self) -> str:
        """End the text; return what this adds for an unpaired surrogate."""
        move(CLIENT, self.state, "text.end")
        rest = self._joiner.finish()
        self._text.add(rest)
        self.ended = True
        return rest

    def rest(self, start: int) -> Iterator[tuple[str, bool]]:
        """Yield the text from ``start`` on, each piece with whether a flush follows it."""
        text = str(self)
        for flush in self._flushes:
            if flush > start:
                yield text[start:flush], True
                start = flush
        if start < len(text):
            yield text[start:], False
