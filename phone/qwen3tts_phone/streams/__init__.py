"""Calls as media streams of Asterisk or a carrier."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qwen3tts_phone.streams.call import StreamCall
    from qwen3tts_phone.streams.carriers.adapter import (
        Handshake,
        Refused,
        StreamAdapter,
        StreamKind,
    )
    from qwen3tts_phone.streams.server import Streams
    from qwen3tts_phone.streams.settings import StreamSettings

_FROM = {
    "Handshake": "qwen3tts_phone.streams.carriers.adapter",
    "Refused": "qwen3tts_phone.streams.carriers.adapter",
    "StreamAdapter": "qwen3tts_phone.streams.carriers.adapter",
    "StreamCall": "qwen3tts_phone.streams.call",
    "StreamKind": "qwen3tts_phone.streams.carriers.adapter",
    "StreamSettings": "qwen3tts_phone.streams.settings",
    "Streams": "qwen3tts_phone.streams.server",
}

__all__ = [
    "Handshake",
    "Refused",
    "StreamAdapter",
    "StreamCall",
    "StreamKind",
    "StreamSettings",
    "Streams",
]


def __getattr__(name: str) -> Any:
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_FROM[name]), name)
