"""What a far end's messages mean: what a `StreamAdapter` makes of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from qwen3tts_codecs.payload import Payload
from qwen3tts_phone.errors import NotPossible


@dataclass(frozen=True, slots=True)
class StreamStarted:
    """The far end says which call this is; audio follows."""

    call_id: str
    """The far end's name for the call; never empty."""
    stream_id: str = ""
    """Its name for the stream, where it has one beside."""
    from_uri: str = ""
    """Who calls, as the far end writes it; empty = it does not say."""
    to_uri: str = ""
    """Who is called."""
    display_name: str = ""
    direction: Literal["in", "out"] = "in"
    """``out``: the far end has dialled for us, and streams the called party."""
    payload: Payload | None = None
    """What is sent to it from now on; None = what the adapter's ``payload`` says."""
    payload_in: Payload | None = None
    """What it sends; None = the same."""
    parameters: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What the dialplan or the start answer handed over, such as ``customParameters``."""


@dataclass(frozen=True, slots=True)
class StreamAudio:
    """Sound of the far end, in the order in which it is heard."""

    data: bytes = field(repr=False)
    timestamp_ms: float | None = None
    """Its place on the stream's own time axis; None = it follows the one before."""
    payload: Payload | None = field(default=None, compare=False)
    """Its format, where that may change from one to the next; None = the adapter's
    ``payload_in``."""


@dataclass(frozen=True, slots=True)
class StreamLost:
    """Sound of the far end that never came, or could not be read: concealed by whoever hears."""

    duration_ms: float = 20.0


@dataclass(frozen=True, slots=True)
class StreamKey:
    """A key was pressed at the far end."""

    digit: str
    """One of ``0123456789*#ABCD``."""
    duration_ms: int = 0
    """0 = it does not say."""


@dataclass(frozen=True, slots=True)
class StreamMark:
    """The far end has played all that was sent before this mark, or was told to drop it."""

    name: str


@dataclass(frozen=True, slots=True)
class StreamCleared:
    """The far end has dropped what it had not played, as it was told."""


@dataclass(frozen=True, slots=True)
class StreamFlow:
    """The far end wants no more for now (``stop``), or takes it again."""

    stop: bool


@dataclass(frozen=True, slots=True)
class StreamStopped:
    """The far end ends the stream, and with it the call."""

    cause: str = ""
    """Its own words; empty = none."""
    error: bool = False
    """Whether it says that something failed."""


@dataclass(frozen=True, slots=True)
class StreamOddity:
    """The far end sent what its protocol does not have; noted in the record, the call goes on."""

    what: str
    """Short, without anything that a caller said or pressed: such as ``unknown event``."""


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
    """How one far end is spoken to.

    `receive` never raises for what the far end sends: what is no message of its protocol becomes a
    `StreamOddity`, and the call goes on.
    """

    line: str = ""
    """Name of the kind of far end, such as ``twilio``; the call's ``line``."""
    owns_clock: bool = False
    """Who times the frames. True: this side; the far end plays each one as it comes, so they leave
    one by one, and silence flows between utterances. False: the far end plays from a queue, and
    frames are sent a bounded lead ahead."""
    ptime_ms: int = 20
    """Duration of a frame given to `audio`."""
    queue_lead_ms: int | None = None
    """How far ahead of the hearing frames are sent; None = what the settings say."""
    has_marks: bool = False
    """Whether `mark` is answered when what went before it has been played."""
    has_clear: bool = True
    """Whether `clear` makes the far end drop what it has not played."""
    has_hang_up: bool = True
    """Whether the call ends at the far end with the stream, by `hang_up` or by the closing; else
    `StreamKind.hang_up` is asked to end it."""
    ends_by_closing: bool = False
    """Whether the far end ends a call by closing the connection; else a close without a
    `StreamStopped` is a fault, and the record says so."""

    @property
    @abstractmethod
    def payload(self) -> Payload:
        """What frames given to `audio` hold; final once `StreamStarted` has come."""

    @property
    def payload_in(self) -> Payload:
        """What `StreamAudio` holds."""
        return self.payload

    rest_after_clear_ms: int = 0
    """No frame is sent for so long after `clear`, where a later frame may overtake it."""

    # --- what comes

    def opened(self) -> Sequence[Message]:
        """What is to be sent as soon as the connection is there."""
        return ()

    @abstractmethod
    def receive(self, message: Message, now: float) -> list[StreamEvent]:
        """Take one message, or over TCP some bytes; ``now``: seconds of the monotonic clock."""

    @property
    def wants_ticks(self) -> bool:
        """Whether `tick` and `flush` are to be called; not any more once it is False."""
        kind = type(self)
        return kind.tick is not StreamAdapter.tick or kind.flush is not StreamAdapter.flush

    def tick(self, now: float) -> list[StreamEvent]:
        """Called about every 20 ms while the stream lasts: what waited in vain for its order."""
        return []

    # --- what goes out

    @abstractmethod
    def audio(self, payload: bytes) -> Sequence[Message]:
        """One frame of `payload`, ``ptime_ms`` long."""

    def flush(self) -> Sequence[Message]:
        """Called about every 20 ms: frames that `audio` has kept to join, and none followed."""
        return ()

    def clear(self) -> Sequence[Message]:
        """Drop all that was sent and is not played yet; empty where there is no such message."""
        return ()

    def mark(self, name: str) -> Sequence[Message]:
        """Tell with a `StreamMark` when what was sent so far has been played."""
        return ()

    def answer(self) -> Sequence[Message]:
        """Take the call, where the far end has not done that already."""
        return ()

    def keys(self, digits: str) -> Sequence[Message]:
        """Press keys. Raises NotPossible where the format has no message for it."""
        raise NotPossible(
            "Pressing keys", self.line, remedy="Press them by the far end's own interface."
        )

    def hang_up(self) -> Sequence[Message]:
        """The last messages, before the connection is closed."""
        return ()


@dataclass(frozen=True, slots=True)
class Handshake:
    """How a connection came about, for whoever makes the adapter and checks who it is."""

    method: str = "GET"
    path: str = "/"
    """Without the query."""
    query: str = field(default="", repr=False)
    """As it was sent, without the question mark."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Names in lower case; of several with one name, the values joined by a comma."""
    peer: str = ""
    """Numeric address of whoever connects."""
    secure: bool = False
    """Whether TLS ends here."""
    subprotocols: tuple[str, ...] = ()
    """What it offers, in its order."""
    body: bytes = field(default=b"", repr=False)
    """Of a webhook; empty with GET."""


class Refused(Exception):
    """A connection is not let in: ``status`` (HTTP) and the reason, which the log has and the far
    end does not."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class StreamKind:
    """One kind of far end on the WebSocket port: its path, how it is checked, its adapter."""

    name: str
    """Such as ``twilio``: the path is ``/NAME`` and what lies below it."""
    make: Callable[[Handshake], StreamAdapter]
    """An adapter for one connection; may look at the query and the headers. Raises Refused."""
    check: Callable[[Handshake], None] | None = None
    """Whether it is who it says, by its signature or key: asked for the stream, and for the start
    answer. None = anybody is let in. Raises Refused."""
    needs_key: str = ""
    """Variables that give a carrier's kind its ``check``: `Streams` does not start without one,
    unless its settings say so. Empty: a far end of one's own network."""
    subprotocols: tuple[str, ...] = ()
    """What is agreed to, the preferred one first; a far end that offers none is let in as well."""
    answer: Callable[[Handshake], tuple[str, str]] | None = None
    """What a webhook returns that starts the stream: content type and body, served for GET at
    ``/NAME/answer``; None = there is none."""
    hang_up: Callable[[str], Awaitable[None]] | None = field(default=None, repr=False)
    """Ends the call of this id at the carrier, where the format has no message for it."""
    transfer: Callable[[str, str], Awaitable[None]] | None = field(default=None, repr=False)
    """Hands the call of this id on to a number or address."""
    press: Callable[[str, str], Awaitable[None]] | None = field(default=None, repr=False)
    """Presses keys on the call of this id."""
