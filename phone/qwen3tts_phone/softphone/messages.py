"""The kinds of field that the softphone's messages have, and their bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from qwen3tts_codecs.table import BROWSER_CODECS
from qwen3tts_wire.fields import (
    Fault,
    Flag,
    Many,
    Numbers,
    OneOf,
    Real,
    Record,
    Text,
    Whole,
    decode,
    encode,
)

CODECS = BROWSER_CODECS
STATES = ("connecting", "ringing", "up", "lost", "ended")
KEYS = tuple("0123456789*#ABCD")
MAX_SDP_CHARS = 65_536
MAX_TYPED_CHARS = 4_096
"""In one ``type``; a paste is sent in several."""
MAX_SAID_CHARS = 20_000
"""In one ``say``."""
MAX_MESSAGE_CHARS = 131_072
MAX_TEXT_CHARS = 1_048_576
"""Bounds what the server itself writes."""

Id = Annotated[str, Text(1, 128, printable=True)]
Name = Annotated[str, Text(0, 4096, printable=True)]
VoiceName = Annotated[str, Text(1, 256, printable=True)]
LanguageTag = Annotated[str, Text(1, 64, printable=True)]
Sdp = Annotated[str, Text(1, MAX_SDP_CHARS)]
Prose = Annotated[str, Text(0, MAX_TEXT_CHARS)]
CodecName = Annotated[str, OneOf(("auto", *CODECS))]
Number = Annotated[float, Real(0, 1e12)]
Time = Annotated[float, Real(-1e15, 1e15)]
Count = Annotated[int, Whole(0, 2**53)]
Yes = Annotated[bool, Flag()]


@dataclass(frozen=True)
class Hello:
    """The first message, within five seconds."""

    type: ClassVar[str] = "hello"
    token: Annotated[str, Text(1, 512, printable=True)] = field(repr=False)
    """The access token."""
    resume: Id | None = None
    """The session to go on with after a lost connection."""


@dataclass(frozen=True)
class Call:
    """Call the voice: what is typed, or the agent, is heard in the page."""

    type: ClassVar[str] = "call"
    sdp: Sdp = field(repr=False)
    """The browser's offer, when its gathering of candidates is complete."""
    codec: CodecName = "auto"
    engine: Id | None = None
    voice: VoiceName | None = None
    language: LanguageTag | None = None
    record: Yes = False
    barge_in: Yes = True
    """Whether the caller's voice silences what is being said."""


@dataclass(frozen=True)
class Dial:
    """Call a SIP address and talk to whoever answers; what is typed is heard by both."""

    type: ClassVar[str] = "dial"
    sdp: Sdp = field(repr=False)
    uri: Annotated[str, Text(1, 1024, printable=True)]
    codec: CodecName = "auto"
    engine: Id | None = None
    voice: VoiceName | None = None
    language: LanguageTag | None = None
    record: Yes = False
    barge_in: Yes = False


@dataclass(frozen=True)
class Listen:
    """Listen in to a call that is under way; the microphone is not in it until ``talk``."""

    type: ClassVar[str] = "listen"
    sdp: Sdp = field(repr=False)
    call_id: Annotated[str, Text(1, 512, printable=True)]
    codec: CodecName = "auto"


@dataclass(frozen=True)
class Talk:
    """Put the microphone into the call that is listened in to, or take it out."""

    type: ClassVar[str] = "talk"
    on: Yes


@dataclass(frozen=True)
class HangUp:
    """End the call."""

    type: ClassVar[str] = "hangup"


@dataclass(frozen=True)
class Interrupt:
    """Stop what is being said."""

    type: ClassVar[str] = "interrupt"


@dataclass(frozen=True)
class Key:
    """A key of the pad."""

    type: ClassVar[str] = "key"
    digit: Annotated[str, OneOf(KEYS)]


@dataclass(frozen=True)
class Mute:
    """The page has stopped, or started, its microphone."""

    type: ClassVar[str] = "mute"
    on: Yes


@dataclass(frozen=True)
class Type:
    """More words to say, as they are typed."""

    type: ClassVar[str] = "type"
    utterance: Count
    """Grows with each utterance of a call."""
    text: Annotated[str, Text(0, MAX_TYPED_CHARS)] = field(repr=False)
    """Follows directly on what came before; complete words."""


@dataclass(frozen=True)
class TypeEnd:
    """The typed utterance is complete."""

    type: ClassVar[str] = "type_end"
    utterance: Count


@dataclass(frozen=True)
class Say:
    """The caller says this to the agent by typing it: a whole turn."""

    type: ClassVar[str] = "say"
    text: Annotated[str, Text(1, MAX_SAID_CHARS)] = field(repr=False)


@dataclass(frozen=True)
class Voice:
    """Speak so from the next utterance on; what is left out is the engine's choice."""

    type: ClassVar[str] = "voice"
    engine: Id | None = None
    voice: VoiceName | None = None
    language: LanguageTag | None = None


@dataclass(frozen=True)
class Report:
    """What the browser measures, about once a second; left out = it does not know."""

    type: ClassVar[str] = "report"
    jitter_buffer_ms: Number | None = None
    rtt_ms: Number | None = None
    lost: Number | None = None
    """Packets, since the call began, as the next two."""
    concealed: Number | None = None
    """Samples that the browser made up."""
    received: Number | None = None


@dataclass(frozen=True)
class Ping:
    """Ask for the server's clock."""

    type: ClassVar[str] = "ping"
    time: Time


@dataclass(frozen=True)
class VoiceEntry:
    """A voice on offer."""

    id: Name
    name: Name
    language: Name


@dataclass(frozen=True)
class EngineEntry:
    """A speech server that the page may choose."""

    id: Id
    name: Name
    kind: Name
    note: Prose = ""
    """What people should know of it, such as that it does not answer now."""
    can_clone: Yes = False
    default_voice: Name = ""
    voices: Annotated[tuple[VoiceEntry, ...], Many(Record(VoiceEntry), 10_000)] = ()


@dataclass(frozen=True)
class CallEntry:
    """A call of this process."""

    id: Name
    line: Name
    direction: Name
    remote: Name
    state: Name
    since_ms: Number
    """How long it has lasted."""
    speaking: Yes = False


@dataclass(frozen=True)
class SipEntry:
    """What may be done with telephone calls."""

    dial: Yes = False
    listen: Yes = False
    accounts: Annotated[tuple[str, ...], Many(Text(0, 256), 1000)] = ()


@dataclass(frozen=True)
class LimitsEntry:
    """The bounds of this server."""

    text_chars: Count
    """In one typed utterance."""
    typed_chars: Count
    """In one ``type``."""
    upload_bytes: Count
    upload_s: Number
    resume_ms: Number
    """How long a call outlives its page's connection."""
    calls: Count


@dataclass(frozen=True)
class IceEntry:
    """A STUN or TURN server, as a browser's RTCIceServer has it."""

    urls: Name
    username: Name = ""
    credential: Name = field(default="", repr=False)


@dataclass(frozen=True)
class Welcome:
    """The answer to ``hello``."""

    type: ClassVar[str] = "hello"
    session: Id
    version: Name
    engines: Annotated[tuple[EngineEntry, ...], Many(Record(EngineEntry), 100)]
    codecs: Annotated[tuple[str, ...], Many(Text(1, 16), 16)]
    agent: Yes
    """Whether a language model talks on calls."""
    recording: Yes
    """Whether calls can be recorded."""
    sip: Annotated[SipEntry, Record(SipEntry)]
    calls: Annotated[tuple[CallEntry, ...], Many(Record(CallEntry), 10_000)]
    limits: Annotated[LimitsEntry, Record(LimitsEntry)]
    server_time: Time
    resumed: Yes = False
    """Whether the session that was asked for goes on."""
    call_id: Name | None = None
    """The call that goes on in it; left out = there is none."""
    ice_servers: Annotated[tuple[IceEntry, ...], Many(Record(IceEntry), 8)] = ()
    """For the browser's connection."""


@dataclass(frozen=True)
class Answer:
    """Our side of a call's description."""

    type: ClassVar[str] = "answer"
    call_id: Name
    sdp: Sdp = field(repr=False)
    codec: Name
    sample_hz: Count


@dataclass(frozen=True)
class State:
    """How the call stands."""

    type: ClassVar[str] = "state"
    state: Annotated[str, OneOf(STATES)]
    cause: Prose = ""
    """In plain words."""
    remedy: Prose = ""
    by: Name = ""
    """Who ended it: ``local``, ``remote``, ``timeout`` or ``error``."""
    code: Name = ""
    """The kind of error, where it was one."""


@dataclass(frozen=True)
class Utterance:
    """What is being said: its text so far, whole."""

    type: ClassVar[str] = "utterance"
    id: Count
    who: Annotated[str, OneOf(("agent", "typed"))]
    text: Prose = field(repr=False)
    typed: Count | None = None
    """The page's own number of it, where it was typed."""


@dataclass(frozen=True)
class Words:
    """More words of an utterance, and where they sound."""

    type: ClassVar[str] = "words"
    id: Count
    words: Annotated[tuple[tuple[int, int, int, int], ...], Many(Many(Whole(0, 2**53), 4), 100_000)]
    """First character and the one after the last, first sample and the one after the last."""
    rate_hz: Count


@dataclass(frozen=True)
class Heard:
    """How much of an utterance had gone out at a moment."""

    type: ClassVar[str] = "heard"
    id: Count
    position: Count
    time: Time


@dataclass(frozen=True)
class Spoken:
    """What became of an utterance."""

    type: ClassVar[str] = "spoken"
    id: Count
    heard: Prose = field(repr=False)
    remaining: Prose = field(repr=False)
    interrupted: Yes
    error: Prose | None = None
    remedy: Prose | None = None
    stages: Annotated[dict[str, float], Numbers()] = field(default_factory=dict)
    """Milliseconds after its first mark, by the names of `qwen3tts_speech.latency.Mark`."""
    clock_error_ms: Number = 0.0
    """How far the speech server's marks may be off."""
    starvations: Count = 0
    longest_gap_ms: Number = 0.0
    typed: Count | None = None


@dataclass(frozen=True)
class Turn:
    """What the caller said."""

    type: ClassVar[str] = "turn"
    text: Prose = field(repr=False)
    barge_in: Yes
    began_ms: Time
    ended_ms: Time


@dataclass(frozen=True)
class Caller:
    """Whether the caller's voice is heard."""

    type: ClassVar[str] = "caller"
    speaking: Yes


@dataclass(frozen=True)
class Line:
    """The line's figures, some five times a second; left out = not known."""

    type: ClassVar[str] = "line"
    time: Time
    state: Name
    """The pacer's, such as ``speaking`` or ``starved``."""
    queued_ms: Number = 0.0
    starvations: Count = 0
    longest_gap_ms: Number = 0.0
    frames: Count = 0
    """Sent since the call began."""
    skipped: Count = 0
    """Slots that were missed."""
    first_sound_ms: Number | None = None
    """From the words of the utterance to its first sound on the wire."""
    rtt_ms: Number | None = None
    lost: Number | None = None
    concealed: Number | None = None
    jitter_buffer_ms: Number | None = None


@dataclass(frozen=True)
class Calls:
    """The calls that are under way, whenever that changes."""

    type: ClassVar[str] = "calls"
    calls: Annotated[tuple[CallEntry, ...], Many(Record(CallEntry), 10_000)]


@dataclass(frozen=True)
class Recorded:
    """A recording can be fetched: ``GET /recordings/ID``."""

    type: ClassVar[str] = "recording"
    id: Id
    seconds: Number


@dataclass(frozen=True)
class Pong:
    """The answer to ``ping``."""

    type: ClassVar[str] = "pong"
    time: Time
    """As it was in the ping."""
    server_time: Time


@dataclass(frozen=True)
class Error:
    """Something did not go as asked."""

    type: ClassVar[str] = "error"
    code: Id
    message: Prose
    remedy: Prose = ""
    about: Name = ""
    """The type of the message that it answers."""
    fatal: Yes = False
    """Whether the connection is closed with it."""


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
    "encoded",
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


def encoded(message: ServerMessage | PageMessage) -> str:
    """A message as JSON text; fields that are None are left out."""
    return encode(message)
