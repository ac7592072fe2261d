"""Agents in telephone calls: a language model, recognisers of speech, turn-taking and tools.

A module is loaded when one of its names is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qwen3tts_agent.agent import Agent
    from qwen3tts_agent.chat.client import ChatClient
    from qwen3tts_agent.chat.messages import (
        ChatMessage,
        ModelRefused,
        ModelStalled,
        ModelUnavailable,
    )
    from qwen3tts_agent.chat.settings import ChatSettings
    from qwen3tts_agent.conversation import Conversation
    from qwen3tts_agent.recognition.callback import CallbackRecogniser
    from qwen3tts_agent.recognition.kinds import recogniser_named
    from qwen3tts_agent.recognition.settings import SocketSettings, WhisperSettings
    from qwen3tts_agent.recognition.websocket import SocketRecogniser
    from qwen3tts_agent.recognition.whisper import WhisperRecogniser
    from qwen3tts_agent.settings import AgentSettings
    from qwen3tts_agent.tools import Tool, ToolError, tool
    from qwen3tts_agent.turn_record import TurnRecord

_MODULES = {
    "qwen3tts_agent.agent": ("Agent",),
    "qwen3tts_agent.chat.messages": (
        "ChatMessage",
        "ModelRefused",
        "ModelStalled",
        "ModelUnavailable",
    ),
    "qwen3tts_agent.chat.settings": ("ChatSettings",),
    "qwen3tts_agent.conversation": ("Conversation",),
    "qwen3tts_agent.settings": ("AgentSettings",),
    "qwen3tts_agent.tools": ("Tool", "ToolError", "tool"),
    "qwen3tts_agent.turn_record": ("TurnRecord",),
    "qwen3tts_agent.chat.client": ("ChatClient",),
    "qwen3tts_agent.recognition.callback": ("CallbackRecogniser",),
    "qwen3tts_agent.recognition.kinds": ("recogniser_named",),
    "qwen3tts_agent.recognition.settings": ("SocketSettings", "WhisperSettings"),
    "qwen3tts_agent.recognition.websocket": ("SocketRecogniser",),
    "qwen3tts_agent.recognition.whisper": ("WhisperRecogniser",),
}
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
