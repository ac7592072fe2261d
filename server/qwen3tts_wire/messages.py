"""Every message of ``qwen3tts.speech.v1``, with its fields, units and bounds.

Positions are samples of the context's rate, counted from its first sample; times are milliseconds
and end in ``_ms``; server times are of the server's monotonic clock. ``docs/protocol.md`` is the
contract in words; a test keeps the two equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, get_args

from qwen3tts_wire.fields import Flag, Many, Numbers, OneOf, Real, Record, Text, Whole
from qwen3tts_wire.formats import DEFAULT_FORMAT, AudioFormat

PROTOCOL = "qwen3tts.speech.v1"

MAX_APPEND_CHARS = 16_384
MAX_TEXT_CHARS = 100_000
MAX_MESSAGE_BYTES = 2_097_152
"""Half a minute of reference audio as base64: 24 kHz, 16 bits, mono."""
MAX_PLAIN_CHARS = 262_144
"""No message but ``voice.load`` is longer: to read 2 MiB of small fields takes 0.1 s, of one string
2 ms, and every call of the server waits meanwhile."""
MIN_WINDOW_MS = 20
MAX_WINDOW_MS = 60_000
DEFAULT_WINDOW_MS = 10_000.0
MAX_CONTEXT_NO = 2**32 - 1
MAX_SAMPLES = 2**53

MODES = ("auto", "clause", "live", "whole", "whole_streaming")
FEATURES = (
    "live_text",
    "alignment",
    "estimated_alignment",
    "playout_steering",
    "voice_loading",
)
PLAYOUT_STATES = ("playing", "starved", "held")

Id = Annotated[str, Text(1, 128, printable=True)]
Name = Annotated[str, Text(0, 4096, printable=True)]
Prose = Annotated[str, Text(0, 4096)]
Samples = Annotated[int, Whole(0, MAX_SAMPLES)]
Milliseconds = Annotated[float, Real(-1e15, 1e15)]
WindowMs = Annotated[float, Real(0, MAX_WINDOW_MS)]
Marks = Annotated[dict[str, float], Numbers()]


@dataclass(frozen=True)
class Sampling:
    """How an engine that samples its tokens shall do it; what is left out is its choice."""

    temperature: Annotated[float, Real(0, 2)] | None = None
    """0 takes the likeliest token."""
    top_p: Annotated[float, Real(0, 1)] | None = None
    """Share of the probability that is drawn from."""
    top_k: Annotated[int, Whole(0, 10_000)] | None = None
    """Number of tokens that are drawn from; 0 is all."""
    repetition_penalty: Annotated[float, Real(0.5, 2)] | None = None
    """Divides the scores of tokens said already."""


# --- client to server ---


@dataclass(frozen=True)
class ContextOpen:
    """Begin an utterance."""

    type: ClassVar[str] = "context.open"
    context_id: Id
    """Name of the context in all JSON messages; not that of another one still known."""
    context_no: Annotated[int, Whole(1, MAX_CONTEXT_NO)]
    """Number of the context in binary headers; greater than every earlier one of the connection."""
    voice: Annotated[str, Text(1, 256, printable=True)] | None = None
    """A voice's id; null is the server's choice."""
    language: Annotated[str, Text(1, 64, printable=True)] | None = None
    """BCP 47 tag; null is the voice's own."""
    instructions: Annotated[str, Text(0, 4096)] | None = None
    """How to speak, in words, where the engine takes that."""
    mode: Annotated[str, OneOf(MODES)] = "auto"
    """How text becomes speech; ``context.started`` says which mode is really used."""
    format: Annotated[AudioFormat, Record(AudioFormat)] = DEFAULT_FORMAT
    """The form of the samples."""
    speed: Annotated[float, Real(0.5, 2.5)] = 1.0
    """Factor on the rate of speech."""
    sampling: Annotated[Sampling, Record(Sampling)] | None = None
    """Sampling of the model's tokens."""
    seed: Annotated[int, Whole(0, 2**63 - 1)] | None = None
    """Start of the random numbers; the same seed, text and settings give the same speech."""
    initial_codec_chunk_frames: Annotated[int, Whole(1, 100)] | None = None
    """Codec frames in the first chunk of audio."""
    lead_ms: Annotated[float, Real(0, 10_000)] | None = None
    """Audio to keep ahead of the listener; above it the engine rests. Null is the
    server's setting."""
    window_ms: Annotated[float, Real(MIN_WINDOW_MS, MAX_WINDOW_MS)] = DEFAULT_WINDOW_MS
    """Audio that may be sent before the first ``audio.credit``; at most the server's limit."""
    pause_flush_ms: Annotated[float, Real(0, 10_000)] | None = None
    """A pause in the text of this length is a flush; 0 never is; null is the server's setting."""


@dataclass(frozen=True)
class TextAppend:
    """More text."""

    type: ClassVar[str] = "text.append"
    context_id: Id
    """The context."""
    text: Annotated[str, Text(0, MAX_APPEND_CHARS)]
    """Follows directly on the text before it. Half surrogates are joined across messages."""


@dataclass(frozen=True)
class TextFlush:
    """Speak all text so far without waiting for the end of a clause."""

    type: ClassVar[str] = "text.flush"
    context_id: Id
    """The context."""


@dataclass(frozen=True)
class TextEnd:
    """No more text will follow."""

    type: ClassVar[str] = "text.end"
    context_id: Id
    """The context."""


@dataclass(frozen=True)
class PlayoutReport:
    """Where the listener is."""

    type: ClassVar[str] = "playout.report"
    context_id: Id
    """The context."""
    played: Samples
    """Samples that have been heard."""
    state: Annotated[str, OneOf(PLAYOUT_STATES)] = "playing"
    """``starved``: no audio to play; ``held``: stopped on purpose."""


@dataclass(frozen=True)
class ContextCancel:
    """Stop this utterance; legal also after ``context.done``."""

    type: ClassVar[str] = "context.cancel"
    context_id: Id
    """The context."""
    played: Samples | None = None
    """Samples that have been heard; null: the last report stands."""


@dataclass(frozen=True)
class AudioCredit:
    """The client has room for more audio of this context."""

    type: ClassVar[str] = "audio.credit"
    context_id: Id
    """The context."""
    window_ms: WindowMs
    """How much more may be sent, added to what is left."""


@dataclass(frozen=True)
class VoiceLoad:
    """Prepare a voice before it is used."""

    type: ClassVar[str] = "voice.load"
    request_id: Id
    """Comes back in the answer."""
    voice_id: Annotated[str, Text(1, 256, printable=True)] | None = None
    """A voice that the server has stored."""
    ref_audio: Annotated[str, Text(1, MAX_MESSAGE_BYTES)] | None = None
    """Reference audio: a sound file, base64; also as a `data:` URL."""
    ref_text: Annotated[str, Text(0, 4096)] | None = None
    """What is said in it; left out: the server finds out, where it can."""
    x_vector_only: Annotated[bool, Flag()] = False
    """Use only its speaker embedding (x-vector)."""


@dataclass(frozen=True)
class Ping:
    """Ask for the server's clock; keeps the connection open."""

    type: ClassVar[str] = "ping"
    client_time_ms: Milliseconds
    """The client's clock; comes back as it is."""


# --- server to client ---


@dataclass(frozen=True)
class VoiceInfo:
    """A voice that may be asked for."""

    id: Name
    """What ``context.open`` names."""
    name: Name
    """For people."""
    language: Name
    """BCP 47 tag."""
    gender: Name | None = None
    """``male`` or ``female``, where it is stated."""
    description: Prose = ""
    """For people."""


@dataclass(frozen=True)
class Limits:
    """The bounds of this server."""

    max_contexts: Annotated[int, Whole(1, 2**31)] = 64
    """Concurrent contexts of a connection."""
    max_append_chars: Annotated[int, Whole(1, 2**31)] = MAX_APPEND_CHARS
    """Code points in one ``text.append``."""
    max_text_chars: Annotated[int, Whole(1, 2**31)] = MAX_TEXT_CHARS
    """Code points in one context."""
    max_message_bytes: Annotated[int, Whole(1, 2**31)] = MAX_MESSAGE_BYTES
    """Bytes in one message; only ``voice.load`` may have more than 262144 characters."""
    max_window_ms: Annotated[float, Real(1, MAX_WINDOW_MS)] = MAX_WINDOW_MS
    """Credit that a context may hold."""


@dataclass(frozen=True)
class SessionCreated:
    """The first message of every connection."""

    type: ClassVar[str] = "session.created"
    protocol: Name
    """``qwen3tts.speech.v1``."""
    engine: Name
    """The kind of engine."""
    model: Name
    """What speaks."""
    voices: Annotated[tuple[VoiceInfo, ...], Many(Record(VoiceInfo, strict=False), 10_000)]
    """The voices on offer, the default first."""
    formats: Annotated[tuple[AudioFormat, ...], Many(Record(AudioFormat, strict=False), 100)]
    """The formats on offer."""
    limits: Annotated[Limits, Record(Limits, strict=False)]
    """The server's bounds."""
    modes: Annotated[tuple[str, ...], Many(Text(1, 64), 16)]
    """The modes that the voices on offer have; one loaded later may have others."""
    features: Annotated[tuple[str, ...], Many(Text(1, 64), 64)] = ()
    """What the engine can do; see Features. What is not named here, it cannot."""


@dataclass(frozen=True)
class VoiceReady:
    """The answer to ``voice.load``."""

    type: ClassVar[str] = "voice.ready"
    request_id: Id
    """As it was in the request."""
    voice_id: Annotated[str, Text(1, 256, printable=True)]
    """What ``context.open`` names."""
    cached: Annotated[bool, Flag()] = False
    """Whether the voice was ready before."""
    ref_text: Annotated[str, Text(0, 4096)] | None = None
    """What its reference says, as given or as found out; left out where it is not used."""


@dataclass(frozen=True)
class Pong:
    """The answer to ``ping``."""

    type: ClassVar[str] = "pong"
    client_time_ms: Milliseconds
    """As it was in the ping."""
    received_ms: Milliseconds
    """Server time when the ping was read."""
    sent_ms: Milliseconds
    """Server time when this was written."""


@dataclass(frozen=True)
class ContextStarted:
    """The context is accepted."""

    type: ClassVar[str] = "context.started"
    context_id: Id
    """The context."""
    context_no: Annotated[int, Whole(1, MAX_CONTEXT_NO)]
    """Its number."""
    mode: Annotated[str, OneOf(MODES)]
    """The mode really used."""
    format: Annotated[AudioFormat, Record(AudioFormat, strict=False)]
    """The form of the samples."""
    voice: Name | None = None
    """The voice that speaks; left out where the engine chooses by language."""
    language: Name | None = None
    """The language asked for."""
    ignored: Annotated[tuple[str, ...], Many(Text(1, 64), 64)] = ()
    """Options of ``context.open`` that this engine does not know."""
    marks: Marks = field(default_factory=dict)
    """When things happened so far; see Marks."""


@dataclass(frozen=True)
class WordInfo:
    """One word, where it sounds and where it stands."""

    text: Annotated[str, Text(0, MAX_TEXT_CHARS)]
    """The word as the engine was given it."""
    start: Samples
    """Its first sample in the context."""
    end: Samples
    """The first sample after it."""
    char_start: Samples
    """Its first code point in all text appended to the context."""
    char_end: Samples
    """The first code point after it."""
    precision: Annotated[str, Text(1, 64)] = "exact"
    """How far start and end can be trusted: ``exact`` or ``estimated``."""
    precision_ms: Annotated[float, Real(0, 1e6)] | None = None
    """How far off they usually are at most, where that was measured."""


@dataclass(frozen=True)
class AlignmentInfo:
    """Words of the audio that follows."""

    type: ClassVar[str] = "alignment"
    context_id: Id
    """The context."""
    words: Annotated[tuple[WordInfo, ...], Many(Record(WordInfo, strict=False), 10_000)]
    """In order."""


@dataclass(frozen=True)
class ContextDone:
    """All audio of the context has been sent."""

    type: ClassVar[str] = "context.done"
    context_id: Id
    """The context."""
    samples: Samples
    """Samples of the whole context."""
    chars: Samples
    """Code points of the whole text."""
    clauses: Samples
    """Pieces in which the engine was given the text."""
    reason: Annotated[str, Text(1, 64)] = "text_end"
    """Why it ended: ``text_end``, ``dry``, ``silence``, ``frame_cap``, ``repeated``,
    ``regenerated``, ``regenerated_cap`` or ``regenerated_repeated``."""
    marks: Marks = field(default_factory=dict)
    """When things happened; see Marks."""


@dataclass(frozen=True)
class ContextCancelled:
    """The context is over; no message of it follows."""

    type: ClassVar[str] = "context.cancelled"
    context_id: Id
    """The context."""
    sent: Samples
    """Samples that were sent."""
    generated: Samples
    """Samples that the engine had made."""
    played: Samples
    """The position that the text was cut at."""
    text_heard: Annotated[str, Text(0, MAX_TEXT_CHARS)]
    """The text up to the last word that was heard."""
    text_remaining: Annotated[str, Text(0, MAX_TEXT_CHARS)]
    """The rest; both together are all text of the context."""
    marks: Marks = field(default_factory=dict)
    """When things happened; see Marks."""


@dataclass(frozen=True)
class ErrorInfo:
    """Something went wrong."""

    type: ClassVar[str] = "error"
    code: Annotated[str, Text(1, 64)]
    """See Error codes."""
    message: Prose
    """What is wrong, and where."""
    remedy: Prose = ""
    """What helps."""
    context_id: Name | None = None
    """The context that it is about."""
    request_id: Name | None = None
    """The request that it is about."""
    retryable: Annotated[bool, Flag()] = False
    """Whether the same request may succeed later."""
    ends: Annotated[str, Text(1, 64)] = "none"
    """What is over with it: ``none``, ``context`` or ``connection``."""


@dataclass(frozen=True)
class ServerDraining:
    """The server will go; open contexts are finished, new ones are refused."""

    type: ClassVar[str] = "server.draining"
    leave_within_ms: Milliseconds
    """After this time the connection is closed."""


ClientMessage = (
    ContextOpen
    | TextAppend
    | TextFlush
    | TextEnd
    | PlayoutReport
    | ContextCancel
    | AudioCredit
    | VoiceLoad
    | Ping
)
ServerMessage = (
    SessionCreated
    | VoiceReady
    | Pong
    | ContextStarted
    | AlignmentInfo
    | ContextDone
    | ContextCancelled
    | ErrorInfo
    | ServerDraining
)

CLIENT_MESSAGES: dict[str, type[ClientMessage]] = {
    kind.type: kind for kind in get_args(ClientMessage)
}
SERVER_MESSAGES: dict[str, type[ServerMessage]] = {
    kind.type: kind for kind in get_args(ServerMessage)
}
