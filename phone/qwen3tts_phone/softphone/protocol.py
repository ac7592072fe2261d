"""Every message between the page and its server, ``qwen3tts.softphone.v1``: fields, units, bounds.

One WebSocket, JSON text, one message each. Times are milliseconds: ``server_time`` and ``time`` of
what the server sends are of its monotonic clock, ``time`` of a ping is the page's. Positions are
samples of ``rate_hz``, counted from an utterance's first; characters are code points. The server
refuses unknown types and fields by name; the page ignores them. Pure: nothing is sent here.
"""

from __future__ import annotations

from qwen3tts_phone.softphone.message_kinds import CODECS, KEYS, MAX_TYPED_CHARS, STATES
from qwen3tts_phone.softphone.page_messages import (
    Call,
    Dial,
    HangUp,
    Hello,
    Interrupt,
    Key,
    Listen,
    Mute,
    Ping,
    Report,
    Say,
    Talk,
    Type,
    TypeEnd,
    Voice,
)
from qwen3tts_phone.softphone.server_messages import (
    Answer,
    CallEntry,
    Caller,
    Calls,
    EngineEntry,
    Error,
    Heard,
    IceEntry,
    LimitsEntry,
    Line,
    Pong,
    Recorded,
    SipEntry,
    Spoken,
    State,
    Turn,
    Utterance,
    VoiceEntry,
    Welcome,
    Words,
)
from qwen3tts_wire.codec import Fault, decode, encode

__all__ = [
    "Answer",
    "CODECS",
    "Call",
    "CallEntry",
    "Caller",
    "Calls",
    "Dial",
    "EngineEntry",
    "IceEntry",
    "Error",
    "Fault",
    "HangUp",
    "Heard",
    "Hello",
    "Interrupt",
    "KEYS",
    "Key",
    "LimitsEntry",
    "Line",
    "Listen",
    "MAX_TYPED_CHARS",
    "Mute",
    "PAGE_MESSAGES",
    "PROTOCOL",
    "PageMessage",
    "Ping",
    "Pong",
    "Recorded",
    "Report",
    "SERVER_MESSAGES",
    "Say",
    "STATES",
    "ServerMessage",
    "SipEntry",
    "Spoken",
    "State",
    "Talk",
    "Turn",
    "Type",
    "TypeEnd",
    "Utterance",
    "Voice",
    "VoiceEntry",
    "Welcome",
    "Words",
    "read_page",
    "written",
]

PROTOCOL = "qwen3tts.softphone.v1"
"""The WebSocket subprotocol."""

PageMessage = (
    Hello
    | Call
    | Dial
    | Listen
    | Talk
    | HangUp
    | Interrupt
    | Key
    | Mute
    | Type
    | TypeEnd
    | Say
    | Voice
    | Report
    | Ping
)
ServerMessage = (
    Welcome
    | Answer
    | State
    | Utterance
    | Words
    | Heard
    | Spoken
    | Turn
    | Caller
    | Line
    | Calls
    | Recorded
    | Pong
    | Error
)

_PAGE = (Hello, Call, Dial, Listen, Talk, HangUp, Interrupt, Key, Mute, Type, TypeEnd)
PAGE_MESSAGES: dict[str, type[PageMessage]] = {
    kind.type: kind for kind in (*_PAGE, Say, Voice, Report, Ping)
}
_SERVER = (Welcome, Answer, State, Utterance, Words, Heard, Spoken, Turn, Caller, Line)
SERVER_MESSAGES: dict[str, type[ServerMessage]] = {
    kind.type: kind for kind in (*_SERVER, Calls, Recorded, Pong, Error)
}


def read_page(text: str) -> PageMessage | Fault:
    """A message of the page; never raises: what cannot be read is a `Fault` that says why."""
    message = decode(text, PAGE_MESSAGES, strict=True)
    assert message is not None, "strict reading gives a message or a fault"
    read: PageMessage | Fault = message
    return read


def written(message: ServerMessage | PageMessage) -> str:
    """A message as JSON text; fields that are None are left out."""
    return encode(message)
