"""What a client has said about the text of a context: enough to say it again to another server."""

from __future__ import annotations

from collections.abc import Iterator

from qwen3tts_text.growing import GrowingText
from qwen3tts_text.surrogates import SurrogateJoiner, clean
from qwen3tts_wire.errors import BadRequest, LimitExceeded
from qwen3tts_wire.states import CLIENT, ContextState, move


class Manuscript:
    """The text, where it was flushed, and whether it has ended. Positions are code points."""

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
        """Where a context of this text is that no server has."""
        return ContextState.ENDING if self.ended else ContextState.OPEN

    def add(self, text: str, most: int) -> str:
        """More text, with halves of characters joined; returns what became certain with it.

        Raises:
            BadRequest: it is not text.
            LimitExceeded: with this there would be more than ``most`` code points; nothing of it
                is kept.
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
        """All text so far is to be spoken."""
        move(CLIENT, self.state, "text.flush")
        if not self._flushes or self._flushes[-1] != len(self):
            self._flushes.append(len(self))

    def end(self) -> str:
        """No more text follows; returns what this adds for a half that stayed alone."""
        move(CLIENT, self.state, "text.end")
        rest = self._joiner.finish()
        self._text.add(rest)
        self.ended = True
        return rest

    def rest(self, start: int) -> Iterator[tuple[str, bool]]:
        """The text from ``start`` on, in pieces; each with whether it was flushed after it."""
        text = str(self)
        for flush in self._flushes:
            if flush > start:
                yield text[start:flush], True
                start = flush
        if start < len(text):
            yield text[start:], False
