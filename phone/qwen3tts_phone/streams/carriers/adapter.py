"""Wire format of a far end without I/O: messages in, events out; frames in, messages out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from qwen3tts_codecs.payload import Payload
from qwen3tts_phone.errors import NotPossible


@dataclass(frozen=True, slots=True)
class StreamStarted:
    """Start of the stream, with the call's identity."""

    call_id: str
    stream_id: str = ""
    from_uri: str = ""
    to_uri: str = ""
    display_name: str = ""
    direction: Literal["in", "out"] = "in"
    payload: Payload | None = None
    """Outbound format; None = the adapter's ``payload``."""
    payload_in: Payload | None = None
    """Inbound format; None = the same."""
    parameters: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class StreamAudio:
    """Inbound audio, in playout order."""

    data: bytes = field(repr=False)
    timestamp_ms: float | None = None
    """Position in the stream; None = it follows the audio before."""
    payload: Payload | None = field(default=None, compare=False)
    """Format, where it may change; None = the adapter's ``payload_in``."""


@dataclass(frozen=True, slots=True)
class StreamLost:
    """Lost or unreadable inbound audio, to be concealed."""

    duration_ms: float = 20.0


@dataclass(frozen=True, slots=True)
class StreamKey:
    digit: str
    """One of ``0123456789*#ABCD``."""
    duration_ms: int = 0


@dataclass(frozen=True, slots=True)
class StreamMark:
    """Returned mark: audio before it was played or cleared."""

    name: str


@dataclass(frozen=True, slots=True)
class StreamCleared: ...


@dataclass(frozen=True, slots=True)
class StreamFlow:
    stop: bool


@dataclass(frozen=True, slots=True)
class StreamStopped:
    """End of stream and call by the far end."""

    cause: str = ""
    error: bool = False


@dataclass(frozen=True, slots=True)
class StreamOddity:
    """Protocol violation, noted in the record."""

    what: str


StreamEvent = (
    StreamStarted
    | StreamAudio
    | StreamLost
    | StreamKey
    | StreamMark
    | StreamCleared
    | StreamFlow
    | StreamStopped
    | StreamOddity
)


Message = str | bytes
"""One WebSocket message, text or binary; over TCP, bytes cut anywhere."""


class StreamAdapter(ABC):
    """Adapter of one connection; `receive` reports `StreamOddity` and never raises."""

    line: str = ""
    owns_clock: bool = False
    """True: this side paces, as the far end plays each frame on arrival; silence is sent, too.
    False: the far end plays from a queue, and frames are sent with a bounded lead."""
    ptime_ms: int = 20
    queue_lead_ms: int | None = None
    """Lead of sending before playout; None = that of the settings."""
    has_marks: bool = False
    has_clear: bool = True
    has_hang_up: bool = True
    """True if the call ends with the stream; else `StreamKind.hang_up` ends it."""
    ends_by_closing: bool = False
    """True if closing the connection is a proper end; else it is a fault without
    `StreamStopped`."""

    @property
    @abstractmethod
    def payload(self) -> Payload:
        """Format of outbound frames; final after `StreamStarted`."""

    @property
    def payload_in(self) -> Payload:
        return self.payload

    rest_after_clear_ms: int = 0
    """Pause of sending after `clear`, where a later frame may overtake it."""

    # --- inbound

    def opened(self) -> Sequence[Message]:
        return ()

    @abstractmethod
    def receive(self, message: Message, now: float) -> list[StreamEvent]:
        """Parse one message, or some TCP bytes; ``now``: monotonic seconds."""

    @property
    def wants_ticks(self) -> bool:
        """True while `tick` and `flush` must be called; final once False."""
        kind = type(self)
        return kind.tick is not StreamAdapter.tick or kind.flush is not StreamAdapter.flush

    def tick(self, now: float) -> list[StreamEvent]:
        return []

    # --- outbound

    @abstractmethod
    def audio(self, payload: bytes) -> Sequence[Message]: ...

    def flush(self) -> Sequence[Message]:
        """Return joined frames that nothing followed; about every 20 ms."""
        return ()

    def clear(self) -> Sequence[Message]:
        return ()

    def mark(self, name: str) -> Sequence[Message]:
        """Return the messages of a mark, which comes back as `StreamMark`."""
        return ()

    def answer(self) -> Sequence[Message]:
        return ()

    def keys(self, digits: str) -> Sequence[Message]:
        raise NotPossible(
            "Pressing keys", self.line, remedy="Press them by the far end's own interface."
        )

    def hang_up(self) -> Sequence[Message]:
        return ()


@dataclass(frozen=True, slots=True)
class Handshake:
    method: str = "GET"
    path: str = "/"
    query: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Names in lower case; repeated ones joined by a comma."""
    peer: str = ""
    secure: bool = False
    subprotocols: tuple[str, ...] = ()
    body: bytes = field(default=b"", repr=False)


class Refused(Exception):
    """Refusal: HTTP status, and a reason for the log only."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class StreamKind:
    """Kind of far end on the WebSocket port: path, authentication, adapter."""

    name: str
    """Such as ``twilio``; its path is ``/NAME`` with all below it."""
    make: Callable[[Handshake], StreamAdapter]
    check: Callable[[Handshake], None] | None = None
    """Authenticates streams and webhooks; raises Refused. None = no authentication."""
    needs_key: str = ""
    """Variables that give a carrier's kind its ``check``, which `Streams` requires unless
    ``insecure`` is set. Empty: a far end of one's own network."""
    subprotocols: tuple[str, ...] = ()
    """Accepted ones, the preferred one first; a far end need not offer any."""
    answer: Callable[[Handshake], tuple[str, str]] | None = None
    """Start answer (content type, body) for a webhook by GET at ``/NAME/answer``; None = none."""
    hang_up: Callable[[str], Awaitable[None]] | None = field(default=None, repr=False)
    transfer: Callable[[str, str], Awaitable[None]] | None = field(default=None, repr=False)
    press: Callable[[str, str], Awaitable[None]] | None = field(default=None, repr=False)
