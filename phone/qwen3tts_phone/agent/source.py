"""Where replies come from: a chat endpoint, or a function of the program's."""

from __future__ import annotations

import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Sequence,
)
from typing import Protocol, cast

from qwen3tts_phone.agent.chat_message import ChatEvent, ChatMessage, ToolSpec
from qwen3tts_wire.errors import BadRequest
from qwen3tts_wire.surrogates import SurrogateJoiner

Writes = Callable[[list[ChatMessage]], AsyncIterable[str] | Awaitable[str]]
"""A function that replies to a conversation: an asynchronous generator of text deltas, or one that
gives the whole text."""


class Source(Protocol):
    """Replies to conversations; one may serve many calls."""

    def stream(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSpec] = (),
        *,
        must_speak: bool = False,
    ) -> AsyncGenerator[ChatEvent, None]:
        """A reply as it is written: text, then the tools to be used. Closed early, it stops.

        ``must_speak``: no tool may be used this time. Raises SpeechError; what came is said.
        """
        ...

    async def close(self) -> None:
        """No more is asked."""
        ...


class Written:
    """A function as a source; it is offered no tools."""

    def __init__(self, function: Writes) -> None:
        self._function = function

    async def stream(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSpec] = (),
        *,
        must_speak: bool = False,
    ) -> AsyncGenerator[ChatEvent, None]:
        """Its deltas, halves of characters joined; raises what it raises."""
        words = self._function(list(messages))
        joiner = SurrogateJoiner()
        if isinstance(words, AsyncIterable):
            deltas = aiter(words)
            try:
                async for delta in deltas:
                    if text := joiner.push(delta):
                        yield text
            finally:
                await _close(deltas)
        else:
            yield joiner.push(await words)
        if text := joiner.finish():
            yield text

    async def close(self) -> None:
        """Nothing to do."""


async def _close(deltas: AsyncIterator[str]) -> None:
    close = getattr(deltas, "aclose", None)
    if close is not None:
        await close()


def source_of(given: object) -> Source:
    """The source that a program gives; raises `BadRequest` for what is none."""
    if callable(getattr(given, "stream", None)):
        return cast(Source, given)
    if callable(given) and not inspect.isclass(given):
        return Written(given)
    raise BadRequest(
        f"a {type(given).__name__} is no language model.",
        remedy="Give the address of one, ChatSettings, or an asynchronous generator function.",
    )
