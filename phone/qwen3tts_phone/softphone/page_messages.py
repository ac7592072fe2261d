"""What a page sends; the protocol as a whole is described in `protocol`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from qwen3tts_phone.softphone.message_kinds import (
    KEYS,
    MAX_SAID_CHARS,
    MAX_TYPED_CHARS,
    CodecWish,
    Count,
    Id,
    LanguageTag,
    Number,
    Sdp,
    Time,
    VoiceName,
    Yes,
)
from qwen3tts_wire.fields import OneOf, Text


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
    codec: CodecWish = "auto"
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
    codec: CodecWish = "auto"
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
    codec: CodecWish = "auto"


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
