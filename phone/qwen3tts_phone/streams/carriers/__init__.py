"""Table of far ends that stream calls.

A new one is a module with a function that returns a `StreamKind`, and a line of `CARRIERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from qwen3tts_phone.streams.carriers.adapter import StreamKind


@dataclass(frozen=True, slots=True)
class Carrier:
    factory: str
    """``module:function``; without arguments it takes its keys from the environment."""
    title: str
    page: str = ""
    """Name of its set-up page in ``docs/lines``; empty = that of the carrier."""
    over_tcp: bool = False
    """True if it has a TCP port of its own; all others share the WebSocket port."""
    alias_of: str = ""
    """Another line that it is the same as, under a path of its own."""


_HERE = "qwen3tts_phone.streams.carriers"
CARRIERS: Final[dict[str, Carrier]] = {
    "audiosocket": Carrier(
        f"{_HERE}.audiosocket:audiosocket", "Asterisk's AudioSocket over TCP", over_tcp=True
    ),
    "asterisk": Carrier(
        f"{_HERE}.asterisk:asterisk", "Asterisk's WebSocket channel", "chan_websocket"
    ),
    "chan_websocket": Carrier(
        f"{_HERE}.asterisk:chan_websocket", "Asterisk's WebSocket channel", alias_of="asterisk"
    ),
    "twilio": Carrier(f"{_HERE}.twilio:twilio", "Twilio Media Streams"),
    "telnyx": Carrier(f"{_HERE}.telnyx:telnyx", "Telnyx media streaming"),
    "plivo": Carrier(f"{_HERE}.plivo:plivo", "Plivo audio streaming"),
    "exotel": Carrier(f"{_HERE}.exotel:exotel", "Exotel's Voicebot applet"),
    "vonage": Carrier(f"{_HERE}.vonage:vonage", "Vonage's Voice API"),
    "jambonz": Carrier(f"{_HERE}.jambonz:jambonz", "jambonz, verb `listen`"),
}


def carrier_names(*, aliases: bool = True) -> tuple[str, ...]:
    return tuple(name for name, each in CARRIERS.items() if aliases or not each.alias_of)


def carrier_factory(name: str) -> Callable[..., StreamKind]:
    if name not in CARRIERS:
        raise ValueError(f"kinds: {name!r} is not one of {', '.join(CARRIERS)}")
    module, _, function = CARRIERS[name].factory.partition(":")
    factory: Callable[..., StreamKind] = getattr(import_module(module), function)
    return factory


def carrier_kind(name: str) -> StreamKind:
    """Return a kind of stream with the environment's keys.

    Raises ValueError for an unknown name.
    """
    return carrier_factory(name)()


def set_up_table() -> str:
    rows = ["| `--line` | Far end | Set-up page |", "|---|---|---|"]
    for name, each in CARRIERS.items():
        if not each.alias_of:
            page = each.page or name
            rows.append(f"| `{name}` | {each.title} | [{page}.md]({page}.md) |")
    return "\n".join(rows) + "\n"
