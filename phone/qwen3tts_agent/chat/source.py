"""Sources of replies: chat endpoint or function."""

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
"""Function that replies to a conversation: an asynchronous generator of text deltas, or one that
returns the whole text.
"""


class ReplySource(Protocol):
    """Source of replies, possibly for many calls.

    An optional non-blocking ``prepare()`` is called when a request is likely soon: as a call
    begins, and while a caller speaks. An optional attribute ``guessable`` that is True allows
    requests ahead of the end of a turn, some of which are given up unheard: `stream` must have no
    effects that matter then.
    """

    def stream(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSpec] = (),
        *,
        must_speak: bool = False,
    ) -> AsyncGenerator[ChatEvent, None]:
        """Yield a reply as it is written: text, then tool calls. Raises SpeechError.

        ``must_speak``: no tool may be used.
        """
        ...

    async def close(self) -> None: ...


class FunctionSource:
    """Function as a source; it is offered no tools."""

    def __init__(self, function: ReplyFunction) -> None:
        self._function = function

    async def stream(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSpec] = (),
        *,
        must_speak: bool = False,
    ) -> AsyncGenerator[ChatEvent, None]:
        """Yield its deltas, surrogate pairs joined; raises its errors, and BadText."""
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

    async def close(self) -> None: ...


def _text(given: object) -> str:
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
    ready = getattr(source, "prepare", None)
    if ready is None:
        return
    try:
        ready()
    except Exception as error:  # the program's own; a request may work nevertheless
        logger.error(
            "prepare() of the source of the replies failed\n%s", traceback_without_message(error)
        )


def guessable(source: ReplySource) -> bool:
    """Return whether requests to a source may be given up unheard: it has no side effects."""
    return getattr(source, "guessable", False) is True


def source_of(given: object) -> ReplySource:
    if callable(getattr(given, "stream", None)):
        return cast(ReplySource, given)
    if inspect.isgeneratorfunction(given):
        raise BadRequest(
            "a synchronous generator function is not a language model.",
            remedy="Write it with async def.",
        )
    if callable(given) and not inspect.isclass(given):
        return FunctionSource(given)
    raise BadRequest(
        f"a {type(given).__name__} is not a language model.",
        remedy="Give the address of one, ChatSettings, or an asynchronous generator function.",
    )
