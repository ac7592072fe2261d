"""Base of both ends of ``qwen3tts.speech.v1``: protocol without I/O.

Each end has four verbs: ``receive_data`` takes one WebSocket message, ``events_received`` returns
what it meant, the ``send_*`` methods say something, ``data_to_send`` returns the WebSocket messages
to write, in order. Nothing here waits, reads a clock or opens a socket.

Bad input never raises. The server answers it with an ``error`` message; the client reports a
``Violation``. The ``send_*`` methods raise ProtocolError when *this* side breaks the rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from qwen3tts_text.surrogates import SurrogateJoiner
from qwen3tts_wire.errors import ProtocolError, SpeechError
from qwen3tts_wire.formats import AudioFrame
from qwen3tts_wire.messages import (
    AlignmentInfo,
    AudioCredit,
    ContextCancel,
    ContextCancelled,
    ContextDone,
    ContextOpen,
    ContextStarted,
    ErrorInfo,
    Ping,
    PlayoutReport,
    Pong,
    ServerDraining,
    SessionCreated,
    TextAppend,
    TextEnd,
    TextFlush,
    VoiceLoad,
    VoiceReady,
)
from qwen3tts_wire.states import ContextState

Data = str | bytes


class Outbox:
    """Queue of WebSocket messages to write."""

    def __init__(self) -> None:
        self._data: list[Data] = []
        self.size = 0
        """Bytes and characters that wait."""

    def put(self, data: Data) -> None:
        self._data.append(data)
        self.size += len(data)

    def take(self) -> list[Data]:
        data, self._data, self.size = self._data, [], 0
        return data


@dataclass(frozen=True)
class ContextBroken:
    """Server side: the protocol itself ended a context; free what it holds."""

    context_id: str
    error: SpeechError


@dataclass(frozen=True)
class Violation:
    """Client side: the server broke the protocol; the context, or all of it, is over."""

    error: ProtocolError
    context_no: int | None = None


ServerEvent = (
    ContextOpen
    | TextAppend
    | TextFlush
    | TextEnd
    | PlayoutReport
    | ContextCancel
    | AudioCredit
    | VoiceLoad
    | Ping
    | ContextBroken
)
ClientEvent = (
    SessionCreated
    | VoiceReady
    | Pong
    | ContextStarted
    | AlignmentInfo
    | AudioFrame
    | ContextDone
    | ContextCancelled
    | ErrorInfo
    | ServerDraining
    | Violation
)


Event = TypeVar("Event")


class Endpoint(Generic[Event]):
    """Base of both ends."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self.outbox = Outbox()
        """Messages that ``data_to_send`` will return."""

    def data_to_send(self) -> list[Data]:
        """Return the WebSocket messages to write, in order; each once."""
        return self.outbox.take()

    def events_received(self) -> list[Event]:
        """Return what the received messages meant, in order; each once."""
        events, self._events = self._events, []
        return events


class ContextRecord:
    """State of one context at either end."""

    def __init__(self, opened: ContextOpen) -> None:
        self.opened = opened
        self.state = ContextState.NEW
        self.joiner = SurrogateJoiner()
        self.chars = 0
        self.offset = 0
        """Position after the last audio, in samples."""

    @property
    def no(self) -> int:
        return self.opened.context_no
