"""What a far end's messages mean: what a `StreamAdapter` makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from qwen3tts_codecs.payload import Payload


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
