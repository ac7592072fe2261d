"""Where replies come from: a chat endpoint, or a function of the program's."""

from __future__ import annotations

import inspect
import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Sequence,
)
from typing import Protocol, cast

from qwen3tts_agent.chat.messages import ChatEvent, ChatMessage, ToolSpec
from qwen3tts_phone.errors import traceback_without_message
from qwen3tts_text.surrogates import SurrogateJoiner
from qwen3tts_wire.errors import BadRequest, BadText

logger = logging.getLogger(__name__)

ReplyFunction = Callable[[list[ChatMessage]], AsyncIterable[str] | Awaitable[str]]
"""A function that replies to a conversation: an asynchronous generator of text deltas, or one that
gives the whole text."""


class ReplySource(Protocol):
    """Replies to conversations; one may serve many calls.

    It may have a method ``prepare()`` besides, which is called when a request is likely to come
    soon: as a call begins, and while a caller speaks. It must return at once.
    """

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


class FunctionSource:
    """A function as a source; it is offered no tools."""

    def __init__(self, function: ReplyFunction) -> None:
        self._function = function

    async def stream(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSpec] = (),
        *,
        must_speak: bool = False,
    ) -> AsyncGenerator[ChatEvent, None]:
        """Its deltas, halves of characters joined; raises what it raises, and `BadText`."""
        words = self._function(list(messages))
        joiner = SurrogateJoiner()
        if isinstance(words, AsyncIterable):
            deltas = aiter(words)
            try:
                async for delta in deltas:
                    if text := joiner.push(_text(delta)):
                        yield text
            finally:
                await _close(deltas)
        elif inspect.isawaitable(words):
            yield joiner.push(_text(await words))
        else:
            raise BadText(
                f"The source of the replies is not asynchronous: it gave a {type(words).__name__}.",
                remedy="Write it with async def.",
            )
        if text := joiner.finish():
            yield text

    async def close(self) -> None:
        """Nothing to do."""


def _text(given: object) -> str:
    """Raises `BadText` for what is none."""
    if isinstance(given, str):
        return given
    raise BadText(
        f"The source of the replies gave a {type(given).__name__}.",
        remedy="Each of its deltas must be a string.",
    )


async def _close(deltas: AsyncIterator[str]) -> None:
    close = getattr(deltas, "aclose", None)
    if close is not None:
        await close()


def prepare(source: ReplySource) -> None:
    """A request is likely to come soon: let the source get ready, where it can."""
    ready = getattr(source, "prepare", None)
    if ready is None:
        return
    try:
        ready()
    except Exception as error:  # it is the program's, and a request may work all the same
        logger.error(
            "prepare() of the source of the replies failed\n%s", traceback_without_message(error)
        )


def source_of(given: object) -> ReplySource:
    """The source that a program gives; raises `BadRequest` for what is none."""
    if callable(getattr(given, "stream", None)):
        return cast(ReplySource, given)
    if inspect.isgeneratorfunction(given):
        raise BadRequest(
            "a generator function that is not asynchronous is no language model.",
            remedy="Write it with async def.",
        )
    if callable(given) and not inspect.isclass(given):
        return FunctionSource(given)
    raise BadRequest(
        f"a {type(given).__name__} is no language model.",
        remedy="Give the address of one, ChatSettings, or an asynchronous generator function.",
    )
