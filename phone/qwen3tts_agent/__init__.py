"""Agents in telephone calls: language model, recognition, turn-taking, tools.

Modules are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_EXPORTS = {
    "qwen3tts_agent.agent": ("Agent",),
    "qwen3tts_agent.chat.client": ("ChatClient",),
    "qwen3tts_agent.chat.messages": (
        "ChatMessage",
        "ModelRefused",
        "ModelStalled",
        "ModelUnavailable",
    ),
    "qwen3tts_agent.chat.settings": ("ChatSettings",),
    "qwen3tts_agent.conversation": ("Conversation",),
    "qwen3tts_agent.recognition.callback": ("CallbackRecogniser",),
    "qwen3tts_agent.recognition.kinds": ("recogniser_named",),
    "qwen3tts_agent.recognition.settings": (
        "SocketSettings",
        "WhisperSettings",
    ),
    "qwen3tts_agent.recognition.websocket": ("SocketRecogniser",),
    "qwen3tts_agent.recognition.whisper": ("WhisperRecogniser",),
    "qwen3tts_agent.settings": ("AgentSettings",),
    "qwen3tts_agent.tools": (
        "Tool",
        "ToolError",
        "tool",
    ),
    "qwen3tts_agent.turn_record": ("TurnRecord",),
}
_MODULE = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = sorted(_MODULE)

if TYPE_CHECKING:  # the same names for type checkers; a test compares them
    from qwen3tts_agent.agent import Agent as Agent
    from qwen3tts_agent.chat.client import ChatClient as ChatClient
    from qwen3tts_agent.chat.messages import ChatMessage as ChatMessage
    from qwen3tts_agent.chat.messages import ModelRefused as ModelRefused
    from qwen3tts_agent.chat.messages import ModelStalled as ModelStalled
    from qwen3tts_agent.chat.messages import ModelUnavailable as ModelUnavailable
    from qwen3tts_agent.chat.settings import ChatSettings as ChatSettings
    from qwen3tts_agent.conversation import Conversation as Conversation
    from qwen3tts_agent.recognition.callback import CallbackRecogniser as CallbackRecogniser
    from qwen3tts_agent.recognition.kinds import recogniser_named as recogniser_named
    from qwen3tts_agent.recognition.settings import SocketSettings as SocketSettings
    from qwen3tts_agent.recognition.settings import WhisperSettings as WhisperSettings
    from qwen3tts_agent.recognition.websocket import SocketRecogniser as SocketRecogniser
    from qwen3tts_agent.recognition.whisper import WhisperRecogniser as WhisperRecogniser
    from qwen3tts_agent.settings import AgentSettings as AgentSettings
    from qwen3tts_agent.tools import Tool as Tool
    from qwen3tts_agent.tools import ToolError as ToolError
    from qwen3tts_agent.tools import tool as tool
    from qwen3tts_agent.turn_record import TurnRecord as TurnRecord


def __getattr__(name: str) -> Any:
    module = _MODULE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
