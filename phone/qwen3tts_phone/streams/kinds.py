"""The kinds of far ends that stream calls to us, by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Final

from qwen3tts_phone.streams.adapter import StreamKind

WHERE: Final[dict[str, tuple[str, str]]] = {
    "asterisk": ("qwen3tts_phone.streams.carriers.asterisk", "asterisk"),
    "chan_websocket": ("qwen3tts_phone.streams.carriers.asterisk", "chan_websocket"),
    "exotel": ("qwen3tts_phone.streams.carriers.twilio", "exotel"),
    "jambonz": ("qwen3tts_phone.streams.carriers.jambonz", "jambonz"),
    "plivo": ("qwen3tts_phone.streams.carriers.twilio", "plivo"),
    "telnyx": ("qwen3tts_phone.streams.carriers.twilio", "telnyx"),
    "twilio": ("qwen3tts_phone.streams.carriers.twilio", "twilio"),
    "vonage": ("qwen3tts_phone.streams.carriers.vonage", "vonage"),
}
"""Module and function that makes each kind of the WebSocket port; keys come from the environment
unless a program gives a kind of its own."""
NAMES: Final = ("audiosocket", *sorted(WHERE))


def kind_named(name: str) -> StreamKind:
    """The kind of this name, as it is without anything given. Raises ValueError for none."""
    if name not in WHERE:
        raise ValueError(f"kinds: {name!r} is none of {', '.join(NAMES)}")
    module, function = WHERE[name]
    make: Callable[[], StreamKind] = getattr(importlib.import_module(module), function)
    return make()
