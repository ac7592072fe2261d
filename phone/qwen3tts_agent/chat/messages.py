"""What is sent to a language model, and what comes back: turns, tools and calls of tools."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qwen3tts_text.surrogates import clean
from qwen3tts_wire.errors import SpeechError


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model wants a tool to be used."""

    id: str
    """Names the call in its result; made up where the model gives none."""
    name: str
    arguments: str = field(repr=False)
    """JSON as the model wrote it, which may be none."""

    def to_json(self) -> dict[str, Any]:
        """As it stands in an assistant's message."""
        function = {"name": clean(self.name), "arguments": clean(self.arguments)}
        return {"id": clean(self.id), "type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One turn of a conversation."""

    role: str
    """``system``, ``user``, ``assistant`` or ``tool``."""
    content: str = field(repr=False)
    tool_calls: tuple[ToolCall, ...] = ()
    """Of an assistant's message: the tools that it wants to use."""
    tool_call_id: str = ""
    """Of a tool's message: which call it answers."""

    def to_json(self) -> dict[str, Any]:
        """As the endpoint takes it."""
        message: dict[str, Any] = {"role": self.role, "content": clean(self.content)}
        if self.tool_calls:
            message["tool_calls"] = [call.to_json() for call in self.tool_calls]
            # Some servers take no empty text beside a call, and all take null.
            message["content"] = message["content"] or None
        if self.role == "tool":
            message["tool_call_id"] = clean(self.tool_call_id)
        return message


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What a model is told of a tool."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of its arguments, an object's."""

    def to_json(self) -> dict[str, Any]:
        """As the endpoint takes it."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
        }
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Finished:
    """The model has ended its reply."""

    reason: str
    """As it says: ``stop``, ``length``, ``content_filter``, ``tool_calls``; empty = not said."""


ChatEvent = str | ToolCall | Finished
"""Of a reply: text deltas, then each tool that the model wants to use, then its end."""


def prompt_chars(messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> int:
    """Return the characters of a prompt: contents, calls of tools, descriptions of tools."""
    chars = 0
    for message in messages:
        chars += len(message.content)
        chars += sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
    for tool in tools:
        chars += (
            len(tool.name)
            + len(tool.description)
            + len(json.dumps(dict(tool.parameters), default=str))
        )
    return chars


def request_body(
    model: str,
    messages: Sequence[ChatMessage],
    tools: Sequence[ToolSpec] = (),
    *,
    must_speak: bool = False,
) -> dict[str, Any]:
    """The body of a streamed request.

    ``must_speak``: the tools are known to the model, but this time it has to answer in words.
    """
    body: dict[str, Any] = {
        "model": model,
        "stream": True,
        "messages": [message.to_json() for message in messages],
    }
    if tools:
        body["tools"] = [tool.to_json() for tool in tools]
        if must_speak:
            body["tool_choice"] = "none"
    return body


class ModelUnavailable(SpeechError):
    """The language model cannot be reached, is too slow, or broke off; it may work later."""

    code = "model_unavailable"
    retryable = True


class ModelStalled(ModelUnavailable):
    """The language model was silent for too long: nobody on the telephone waits as long again."""

    code = "model_stalled"


class BudgetSpent(SpeechError):
    """The requests that a call, or the process, may make to the language model are used up."""

    code = "budget_spent"


class ModelRefused(SpeechError):
    """The language model's server does not take the request as it is."""

    code = "model_refused"
