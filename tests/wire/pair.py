"""A client and a server of the protocol, joined by a wire that holds messages until told."""

from __future__ import annotations

from collections import deque
from typing import Any

from qwen3tts_wire.client_end import ClientProtocol
from qwen3tts_wire.endpoint import ClientEvent, Data, ServerEvent, Violation
from qwen3tts_wire.formats import FORMATS, AudioFrame
from qwen3tts_wire.messages import (
    PROTOCOL,
    ContextCancelled,
    ContextDone,
    ContextStarted,
    ErrorInfo,
    Limits,
    SessionCreated,
)
from qwen3tts_wire.server_end import ServerProtocol

GREETING = SessionCreated(PROTOCOL, "fake", "tones", (), FORMATS, Limits(), ("clause",))


class ConnectionPair:
    """Both ends. ``up`` and ``down`` move what was said; nothing moves by itself."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.client = ClientProtocol()
        self.server = ServerProtocol(limits)
        self.rising: deque[Data] = deque()
        self.falling: deque[Data] = deque()
        self.log: list[Data] = []
        """Everything that the server sent, in order."""
        self.server.send_session_created(GREETING)
        self.down()

    def up(self, count: int | None = None) -> list[ServerEvent]:
        """Bring the client's messages to the server; what they meant there."""
        self.rising.extend(self.client.data_to_send())
        for _ in range(len(self.rising) if count is None else min(count, len(self.rising))):
            self.server.receive_data(self.rising.popleft())
        return self.server.events_received()

    def down(self, count: int | None = None) -> list[ClientEvent]:
        """Bring the server's messages to the client; what they meant there."""
        sent = self.server.data_to_send()
        self.log.extend(sent)
        self.falling.extend(sent)
        for _ in range(len(self.falling) if count is None else min(count, len(self.falling))):
            self.client.receive_data(self.falling.popleft())
        return self.client.events_received()

    def open(self, **options: Any) -> int:
        """Open a context on both ends and have it accepted; returns its number."""
        opened = self.client.send_open(**options)
        self.up()
        self.server.send_started(started(opened.context_id, opened.context_no))
        self.down()
        return opened.context_no


def started(context_id: str, context_no: int) -> ContextStarted:
    return ContextStarted(context_id, context_no, "clause", FORMATS[0])


def done(context_id: str) -> ContextDone:
    return ContextDone(context_id, 0, 0, 0)


def cancelled(context_id: str) -> ContextCancelled:
    return ContextCancelled(context_id, 0, 0, 0, "", "")


def errors(events: list[ClientEvent]) -> list[ErrorInfo]:
    return [each for each in events if isinstance(each, ErrorInfo)]


def violations(events: list[ClientEvent]) -> list[Violation]:
    return [each for each in events if isinstance(each, Violation)]


def sound(events: list[ClientEvent]) -> list[AudioFrame]:
    return [each for each in events if isinstance(each, AudioFrame)]
