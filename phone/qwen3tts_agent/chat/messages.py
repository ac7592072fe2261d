"""Messages to and from a language model, tools, and errors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qwen3tts_text.surrogates import clean
from qwen3tts_wire.errors import SpeechError
from qwen3tts_wire.fields import JSON


@dataclass(frozen=True, slots=True)
class ToolCall:
    """Request of the model to use a tool."""

    id: str
    """Id for its result; generated where the model gives none."""
    name: str
    arguments: str = field(repr=False)
    """JSON as the model wrote it, possibly invalid."""

    def to_json(self) -> JSON:
        function = {"name": clean(self.name), "arguments": clean(self.arguments)}
        return {"id": clean(self.id), "type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """Message of a conversation."""

    role: str
    """``system``, ``user``, ``assistant`` or ``tool``."""
    content: str = field(repr=False)
    tool_calls: tuple[ToolCall, ...] = ()
    """Tools that an assistant's message asks for."""
    tool_call_id: str = ""
    """Id of the tool call that a tool's message answers."""

    def to_json(self) -> JSON:
        message: JSON = {"role": self.role, "content": clean(self.content)}
        if self.tool_calls:
            message["tool_calls"] = [call.to_json() for call in self.tool_calls]
            # Some servers take no empty text beside a call, and all take null.
            message["content"] = message["content"] or None
        if self.role == "tool":
            message["tool_call_id"] = clean(self.tool_call_id)
        return message


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """Description of a tool for the model."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of its arguments, an object's."""

    def to_json(self) -> JSON:
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
        }
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Finished:
    """End of the model's reply."""

    reason: str
    """``stop``, ``length``, ``content_filter``, ``tool_calls``; empty = not given."""


ChatEvent = str | ToolCall | Finished
"""Events of a reply: text deltas, then tool calls, then its end."""


def prompt_chars(messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> int:
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
) -> JSON:
    """Return a streamed request; ``must_speak``: without tools."""
    body: JSON = {
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
    """Language model unreachable, too slow, or broken off; may work later."""

    code = "model_unavailable"
    retryable = True


class ModelStalled(ModelUnavailable):
    """Language model silent for too long; not retried on a telephone."""

    code = "model_stalled"


class BudgetSpent(SpeechError):
    """Request budget of a call or the process used up."""

    code = "budget_spent"


class ModelRefused(SpeechError):
    """Refusal of the request by the language model's server."""

    code = "model_refused"
