"""A recogniser's server behind a WebSocket: what differs from one to another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from websockets.asyncio.client import ClientConnection

from qwen3tts_phone.recognise.base import Samples, Transcript
from qwen3tts_phone.recognise.socket_protocol import Answer, Outgoing


class CallStream(Protocol):
    """One call's turns as messages of a protocol (pure): events in, messages out.

    Nothing is sent while no server is ready; see `TurnStream`, which is the one of
    ``qwen3tts.recogniser.v1``.
    """

    def greeted(self) -> tuple[Outgoing, list[int]]:
        """The server is ready: what it is sent of turns under way, and the turns given up."""

    def lost(self) -> None:
        """The connection is gone."""

    def idle(self) -> Outgoing:
        """Nothing was sent for a while."""

    def leaving(self) -> Outgoing:
        """The call is over: the last messages of the connection."""

    def push(self, samples: Samples, at: float) -> Outgoing:
        """The caller's sound; see `Recognition.push`, and so on for the five that follow."""

    def begin_turn(self, at: float) -> tuple[Outgoing, int]:
        """A turn begins; what is sent, and its number."""

    def pause(self, at: float) -> Outgoing:
        """The caller is silent since ``at``."""

    def resume(self) -> Outgoing:
        """They speak on."""

    def drop_turn(self) -> Outgoing:
        """It was a noise."""

    def end_turn(self, at: float) -> tuple[Outgoing, int | None, int | None]:
        """The turn is over; what is sent, its number, and that of an older one given up for it."""

    def give_up(self, number: int) -> Outgoing:
        """Nobody waits for this turn any more."""

    def finished(self, number: int) -> Transcript | None:
        """The text of a turn that has ended, where it is complete already; once."""

    def known(self, number: int) -> Transcript | None:
        """What there is of the text of a turn that has ended, for want of better; once."""

    def read(self, message: str | bytes) -> list[Answer]:
        """What a message means for this call; raises ProtocolError."""


@dataclass(frozen=True, slots=True)
class SocketService:
    """A recogniser's server: its protocol, and how long things may take there."""

    shown: str
    """Its address for messages."""
    rate_hz: int
    dial: Callable[[], Awaitable[ClientConnection]]
    """Connects, and returns when turns may be sent; raises as `socket_dialling.dial`."""
    stream: Callable[[], CallStream]
    """Makes a call's."""
    answer_timeout_s: float
    behind_s: float
    settle_s: float | None = None
    """So long after a turn `CallStream.known` counts; None = never."""
    keep_alive_s: float | None = None
    """So long after the last message `CallStream.idle` is sent; None = never."""
