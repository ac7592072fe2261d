"""Messages of ``qwen3tts.softphone.v1``, their fields, units and bounds (pure).

Times are milliseconds of the server's monotonic clock, except ``time`` of a ping. Positions are
samples of ``rate_hz``; characters are code points. The server refuses unknown types and fields.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from qwen3tts_codecs.table import BROWSER_CODECS
from qwen3tts_phone.softphone.entries import (
    CallEntry,
    Count,
    EngineEntry,
    IceEntry,
    Id,
    LimitsEntry,
    Name,
    Number,
    Prose,
    SipEntry,
    Yes,
)
from qwen3tts_phone.softphone.webrtc.report import Report
from qwen3tts_wire.errors import BadRequest
from qwen3tts_wire.fields import (
    DecodeError,
    Many,
    Numbers,
    OneOf,
    Real,
    Record,
    Text,
    Whole,
    decode,
    encode,
    read,
)

PROTOCOL = "qwen3tts.softphone.v1"
CODECS = BROWSER_CODECS
STATES = ("connecting", "ringing", "up", "lost", "ended")
KEYS = tuple("0123456789*#ABCD")
MAX_SDP_CHARS = 65_536
MAX_TYPED_CHARS = 4_096
MAX_SAID_CHARS = 20_000

VoiceName = Annotated[str, Text(1, 256, printable=True)]
LanguageTag = Annotated[str, Text(1, 64, printable=True)]
Sdp = Annotated[str, Text(1, MAX_SDP_CHARS)]
CodecName = Annotated[str, OneOf(("auto", *CODECS))]
Time = Annotated[float, Real(-1e15, 1e15)]

# --- page to server ---


@dataclass(frozen=True)
class Hello:
    """The first message, within five seconds."""

    type: ClassVar[str] = "hello"
    token: Annotated[str, Text(1, 512, printable=True)] = field(repr=False)
    resume: Id | None = None
    """Session to resume after a lost connection."""


@dataclass(frozen=True)
class Call:
    """Call the voice: the page hears typed text, or the agent."""

    type: ClassVar[str] = "call"
    sdp: Sdp = field(repr=False)
    """The browser's offer, with all of its candidates."""
    codec: CodecName = "auto"
    engine: Id | None = None
    voice: VoiceName | None = None
    language: LanguageTag | None = None
    record: Yes = False
    barge_in: Yes = True


@dataclass(frozen=True)
class Dial:
    """Call a SIP address and talk to the callee; typed text is heard by both."""

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
    """Monitor a running call; the microphone joins it with ``talk``."""

    type: ClassVar[str] = "listen"
    sdp: Sdp = field(repr=False)
    call_id: Annotated[str, Text(1, 512, printable=True)]
    codec: CodecName = "auto"


@dataclass(frozen=True)
class Talk:
    """Put the microphone into the monitored call, or take it out."""

    type: ClassVar[str] = "talk"
    on: Yes


@dataclass(frozen=True)
class HangUp:
    type: ClassVar[str] = "hangup"


@dataclass(frozen=True)
class Interrupt:
    type: ClassVar[str] = "interrupt"


@dataclass(frozen=True)
class Key:
    type: ClassVar[str] = "key"
    digit: Annotated[str, OneOf(KEYS)]


@dataclass(frozen=True)
class Mute:
    type: ClassVar[str] = "mute"
    on: Yes


@dataclass(frozen=True)
class Type:
    """More text to say, as it is typed."""

    type: ClassVar[str] = "type"
    utterance: Count
    text: Annotated[str, Text(0, MAX_TYPED_CHARS)] = field(repr=False)


@dataclass(frozen=True)
class TypeEnd:
    type: ClassVar[str] = "type_end"
    utterance: Count


@dataclass(frozen=True)
class Say:
    """A typed turn of the caller, for the agent."""

    type: ClassVar[str] = "say"
    text: Annotated[str, Text(1, MAX_SAID_CHARS)] = field(repr=False)


@dataclass(frozen=True)
class Voice:
    """Voice of the next utterances; the engine chooses what is left out."""

    type: ClassVar[str] = "voice"
    engine: Id | None = None
    voice: VoiceName | None = None
    language: LanguageTag | None = None


@dataclass(frozen=True)
class Ping:
    type: ClassVar[str] = "ping"
    time: Time


@dataclass(frozen=True)
class Leave:
    """Beacon of a closing page (``POST /leave``, without a type)."""

    token: Annotated[str, Text(1, 512, printable=True)] = field(repr=False)
    session: Id


# --- server to page ---


@dataclass(frozen=True)
class Welcome:
    type: ClassVar[str] = "hello"
    session: Id
    version: Name
    engines: Annotated[tuple[EngineEntry, ...], Many(Record(EngineEntry), 100)]
    codecs: Annotated[tuple[str, ...], Many(Text(1, 16), 16)]
    agent: Yes
    recording: Yes
    sip: Annotated[SipEntry, Record(SipEntry)]
    calls: Annotated[tuple[CallEntry, ...], Many(Record(CallEntry), 10_000)]
    limits: Annotated[LimitsEntry, Record(LimitsEntry)]
    server_time: Time
    resumed: Yes = False
    call_id: Name | None = None
    ice_servers: Annotated[tuple[IceEntry, ...], Many(Record(IceEntry), 8)] = ()


@dataclass(frozen=True)
class Answer:
    type: ClassVar[str] = "answer"
    call_id: Name
    sdp: Sdp = field(repr=False)
    codec: Name
    sample_hz: Count


@dataclass(frozen=True)
class State:
    type: ClassVar[str] = "state"
    state: Annotated[str, OneOf(STATES)]
    cause: Prose = ""
    remedy: Prose = ""
    by: Name = ""
    """Side that ended it: ``local``, ``remote``, ``timeout`` or ``error``."""
    code: Name = ""


@dataclass(frozen=True)
class Utterance:
    type: ClassVar[str] = "utterance"
    id: Count
    who: Annotated[str, OneOf(("agent", "typed"))]
    text: Prose = field(repr=False)
    typed: Count | None = None


@dataclass(frozen=True)
class Words:
    """More words of an utterance with their alignment."""

    type: ClassVar[str] = "words"
    id: Count
    words: Annotated[tuple[tuple[int, int, int, int], ...], Many(Many(Whole(0, 2**53), 4), 100_000)]
    """First character and the one after the last, first sample and the one after the last."""
    rate_hz: Count


@dataclass(frozen=True)
class Heard:
    """Playout position of an utterance at a moment."""

    type: ClassVar[str] = "heard"
    id: Count
    position: Count
    time: Time


@dataclass(frozen=True)
class Spoken:
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
    starvations: Count = 0
    longest_gap_ms: Number = 0.0
    typed: Count | None = None


@dataclass(frozen=True)
class Turn:
    type: ClassVar[str] = "turn"
    text: Prose = field(repr=False)
    barge_in: Yes
    began_ms: Time
    ended_ms: Time


@dataclass(frozen=True)
class Caller:
    type: ClassVar[str] = "caller"
    speaking: Yes


@dataclass(frozen=True)
class Line:
    """Statistics of the call's media, five times a second."""

    type: ClassVar[str] = "line"
    time: Time
    state: Name
    """The pacer's, such as ``speaking`` or ``starved``."""
    queued_ms: Number = 0.0
    starvations: Count = 0
    longest_gap_ms: Number = 0.0
    frames: Count = 0
    skipped: Count = 0
    first_sound_ms: Number | None = None
    """From the utterance's first text to its first audible packet."""
    rtt_ms: Number | None = None
    lost: Number | None = None
    concealed: Number | None = None
    jitter_buffer_ms: Number | None = None


@dataclass(frozen=True)
class Calls:
    type: ClassVar[str] = "calls"
    calls: Annotated[tuple[CallEntry, ...], Many(Record(CallEntry), 10_000)]


@dataclass(frozen=True)
class Recorded:
    """A recording is ready: ``GET /recordings/ID``."""

    type: ClassVar[str] = "recording"
    id: Id
    seconds: Number


@dataclass(frozen=True)
class Pong:
    type: ClassVar[str] = "pong"
    time: Time
    server_time: Time


@dataclass(frozen=True)
class Error:
    type: ClassVar[str] = "error"
    code: Id
    message: Prose
    remedy: Prose = ""
    about: Name = ""
    fatal: Yes = False


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
PAGE_MESSAGES: dict[str, type[PageMessage]] = {kind.type: kind for kind in PageMessage.__args__}
SERVER_MESSAGES: dict[str, type[ServerMessage]] = {
    kind.type: kind for kind in ServerMessage.__args__
}


def read_page(text: str) -> PageMessage | DecodeError:
    message = decode(text, PAGE_MESSAGES, strict=True)
    assert message is not None, "strict reading gives a message or a fault"
    page: PageMessage | DecodeError = message
    return page


def read_leave(data: bytes) -> Leave:
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise BadRequest("A page that leaves gives token and session.")
    leave: Leave = read(Leave, fields, where="leave", strict=False)
    return leave


def encoded(message: ServerMessage | PageMessage) -> str:
    return encode(message)
