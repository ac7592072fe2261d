"""Uses tools for a model: whatever goes wrong with one is told to the model, never raised."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from qwen3tts_phone.agent.chat_message import ToolCall
from qwen3tts_phone.agent.tools import Tool, ToolError
from qwen3tts_phone.errors import without_words
from qwen3tts_phone.threads import Threads

logger = logging.getLogger(__name__)

MOST_THREADS = 64
"""Functions that are not asynchronous and run at the same time; those that hang count, too."""
MOST_ERROR_CHARS = 500
"""Longest text of a `ToolError` that the model gets."""

_threads = Threads("tool", MOST_THREADS)


class Toolbox:
    """The tools of one call."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        ours: Mapping[str, object],
        *,
        timeout_s: float,
        most_chars: int,
    ) -> None:
        """``ours``: what parameters of those names get. ``timeout_s``: for tools that say none."""
        self.tools = dict(tools)
        self._ours = ours
        self._timeout_s = timeout_s
        self._most_chars = most_chars

    async def use(self, call: ToolCall) -> tuple[str, bool]:
        """What a tool gave, as text for the model, and whether it did what it should.

        Cancelled, it cancels an asynchronous tool; a thread cannot be stopped, and is left to it.
        """
        found = self.tools.get(call.name)
        if found is None:
            known = ", ".join(self.tools) or "none"
            return f"Error: there is no tool {call.name[:64]!r}. Tools: {known}.", False
        try:
            arguments = json.loads(call.arguments or "{}")
        except (ValueError, RecursionError) as error:
            return f"Error: the arguments are no JSON ({str(error)[:100]}).", False
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, dict):
            return "Error: the arguments are no JSON object.", False
        if wrong := found.check(arguments):
            return f"Error: the arguments are wrong: {wrong}.", False
        timeout_s = found.timeout_s or self._timeout_s
        ours = {name: self._ours[name] for name in found.fills}
        try:
            async with asyncio.timeout(timeout_s):
                value = await _result(found.run, {**arguments, **ours})
        except TimeoutError:
            logger.warning("the tool %s has not ended within %g s", found.name, timeout_s)
            return f"Error: the tool did not answer within {timeout_s:g} seconds.", False
        except ToolError as error:
            return f"Error: {str(error)[:MOST_ERROR_CHARS]}", False
        except Exception as error:
            # Whatever breaks in a tool of the program's. No words: they may be the caller's, and
            # what a database or a far end says is not for the model either.
            logger.warning("the tool %s failed\n%s", found.name, without_words(error))
            return f"Error: the tool failed ({type(error).__name__[:64]}).", False
        return self._text(value), True

    def _text(self, value: object) -> str:
        text = value if isinstance(value, str) else _json(value)
        if len(text) <= self._most_chars:
            return text
        return f"{text[: self._most_chars]}… (cut off here; {len(text)} characters in all)"


def _json(value: object) -> str:
    if value is None:
        return "Done."
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)


async def _result(run: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    if inspect.iscoroutinefunction(run) or inspect.iscoroutinefunction(
        getattr(run, "__call__", None)  # noqa: B004 (an object with an asynchronous __call__)
    ):
        return await run(**arguments)
    value = await _threads.run(run, **arguments)
    return await value if inspect.isawaitable(value) else value
