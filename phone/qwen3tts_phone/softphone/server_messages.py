"""What a page is told; the protocol as a whole is described in `protocol`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from qwen3tts_phone.softphone.message_kinds import (
    STATES,
    Count,
    Id,
    Name,
    Number,
    Prose,
    Sdp,
    Time,
    Yes,
)
from qwen3tts_wire.fields import Many, Numbers, OneOf, Record, Text, Whole


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
