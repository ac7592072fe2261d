"""Base of both ends of ``qwen3tts.speech.v1``, without I/O.

``receive_data`` takes a WebSocket message, ``events_received`` returns its meaning, ``send_*``
speak, ``data_to_send`` returns messages in order. Bad input never raises: the server answers
``error``, the client reports a ``Violation``. ``send_*`` raise ProtocolError for this side's
mistakes.
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
    """Queue of messages to write."""

    def __init__(self) -> None:
        self._data: list[Data] = []
        self.size = 0
        """Waiting bytes and characters."""

    def put(self, data: Data) -> None:
        self._data.append(data)
        self.size += len(data)

    def take(self) -> list[Data]:
        data, self._data, self.size = self._data, [], 0
        return data


@dataclass(frozen=True)
class ContextBroken:
    """Server side: the protocol ended a context; free its resources."""

    context_id: str
    error: SpeechError


@dataclass(frozen=True)
class Violation:
    """Client side: protocol violation; the context, or all, is over."""

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

    def data_to_send(self) -> list[Data]:
        """Return the messages to write, in order, once."""
        return self.outbox.take()

    def events_received(self) -> list[Event]:
        """Return the received events, in order, once."""
        events, self._events = self._events, []
        return events


class ContextRecord:
    """Context state at either end."""

    def __init__(self, opened: ContextOpen) -> None:
        self.opened = opened
        self.state = ContextState.NEW
        self.joiner = SurrogateJoiner()
        self.chars = 0
        self.offset = 0
        """Position after the last audio, samples."""

    @property
    def no(self) -> int:
        return self.opened.context_no
