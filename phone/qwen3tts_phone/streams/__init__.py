"""Calls that come as a media stream: from Asterisk, or from a carrier, over TCP or a WebSocket.

The ports are `Streams`, and each call that comes is a `StreamCall`; a kind of far end is a
`StreamKind`, with a `StreamAdapter` for each connection.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qwen3tts_phone.streams.adapter import Handshake, Refused, StreamAdapter, StreamKind
    from qwen3tts_phone.streams.call import StreamCall
    from qwen3tts_phone.streams.server import Streams
    from qwen3tts_phone.streams.settings import StreamSettings

_FROM = {
    "Handshake": "qwen3tts_phone.streams.adapter",
    "Refused": "qwen3tts_phone.streams.adapter",
    "StreamAdapter": "qwen3tts_phone.streams.adapter",
    "StreamCall": "qwen3tts_phone.streams.call",
    "StreamKind": "qwen3tts_phone.streams.adapter",
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
    """What is named above, loaded when it is asked for."""
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_FROM[name]), name)
