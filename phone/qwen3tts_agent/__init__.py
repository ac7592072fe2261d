"""Agents in telephone calls: a language model, recognisers of speech, turn-taking and tools.

    from qwen3tts_agent import Agent
    from qwen3tts_phone import Phone

    agent = Agent("http://127.0.0.1:11434/v1", model="llama3.2", greeting="Hello, how can I help?")
    async with Phone(port=5060) as phone:
        await agent.serve(phone)

A module is loaded when one of its names is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qwen3tts_phone.agent.agent import Agent
    from qwen3tts_phone.agent.chat_errors import ModelRefused, ModelStalled, ModelUnavailable
    from qwen3tts_phone.agent.chat_message import ChatMessage
    from qwen3tts_phone.agent.chat_settings import ChatSettings
    from qwen3tts_phone.agent.conversation import Conversation
    from qwen3tts_phone.agent.settings import AgentSettings
    from qwen3tts_phone.agent.tools import Tool, ToolError, tool
    from qwen3tts_phone.agent.turn_record import TurnRecord
    from qwen3tts_phone.bridge import ChatClient
    from qwen3tts_phone.recognise.callback import CallbackRecogniser
    from qwen3tts_phone.recognise.kinds import recogniser_named
    from qwen3tts_phone.recognise.socket_settings import SocketSettings
    from qwen3tts_phone.recognise.websocket import SocketRecogniser
    from qwen3tts_phone.recognise.whisper import WhisperRecogniser
    from qwen3tts_phone.recognise.whisper_settings import WhisperSettings

_MODULES = {
    "qwen3tts_phone.agent.agent": ("Agent",),
    "qwen3tts_phone.agent.chat_errors": ("ModelRefused", "ModelStalled", "ModelUnavailable"),
    "qwen3tts_phone.agent.chat_message": ("ChatMessage",),
    "qwen3tts_phone.agent.chat_settings": ("ChatSettings",),
    "qwen3tts_phone.agent.conversation": ("Conversation",),
    "qwen3tts_phone.agent.settings": ("AgentSettings",),
    "qwen3tts_phone.agent.tools": ("Tool", "ToolError", "tool"),
    "qwen3tts_phone.agent.turn_record": ("TurnRecord",),
    "qwen3tts_phone.bridge": ("ChatClient",),
    "qwen3tts_phone.recognise.callback": ("CallbackRecogniser",),
    "qwen3tts_phone.recognise.kinds": ("recogniser_named",),
    "qwen3tts_phone.recognise.socket_settings": ("SocketSettings",),
    "qwen3tts_phone.recognise.websocket": ("SocketRecogniser",),
    "qwen3tts_phone.recognise.whisper": ("WhisperRecogniser",),
    "qwen3tts_phone.recognise.whisper_settings": ("WhisperSettings",),
}
"""Names by module; a test holds it equal to the imports above."""
_MODULE = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Agent",
    "AgentSettings",
    "CallbackRecogniser",
    "ChatClient",
    "ChatMessage",
    "ChatSettings",
    "Conversation",
    "ModelRefused",
    "ModelStalled",
    "ModelUnavailable",
    "SocketRecogniser",
    "SocketSettings",
    "Tool",
    "ToolError",
    "TurnRecord",
    "WhisperRecogniser",
    "WhisperSettings",
    "recogniser_named",
    "tool",
]


def __getattr__(name: str) -> Any:
    module = _MODULE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
