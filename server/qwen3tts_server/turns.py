"""What clients send is taken a little at a time.

Up to 256 KiB of what has come are handed over at once, which can be 40,000 WebSocket frames or
pieces of an HTTP body: half a second of work in which nobody else's sound would move.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

TURN_BYTES = 4096
"""Taken of one connection before the others have their turn; some 10 ms where all is small."""


class Valve:
    """A transport, and whether its protocol wants to read; turns hold reading up besides."""

    def __init__(self, inner: Any, on_open: Callable[[], None]) -> None:
        self.inner = inner
        self.open = True
        self._on_open = on_open

    def pause_reading(self) -> None:
        """The protocol wants no more for now."""
        self.open = False
        self.inner.pause_reading()

    def resume_reading(self) -> None:
        """The protocol wants more."""
        self.open = True
        self._on_open()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class InTurns(asyncio.Protocol):
    """Stands before a protocol's class: its ``data_received`` gets at most TURN_BYTES in a turn."""

    def connection_made(self, transport: Any) -> None:
        """A connection; one that was another protocol's keeps its transport."""
        self._held = bytearray()
        """What has come and was not taken yet; while there is some, nothing is read."""
        self._due = False
        inner = transport.inner if isinstance(transport, Valve) else transport
        self._valve = Valve(inner, self._go_on)
        super().connection_made(self._valve)  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        """Take it, or as much as there is time for."""
        if not self._held and len(data) <= TURN_BYTES:
            self.take(data)
            return
        self._held += data
        self._valve.inner.pause_reading()
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """What was not taken is nobody's any more."""
        self._held.clear()
        super().connection_lost(exc)

    def take(self, data: bytes) -> None:
        """At most TURN_BYTES."""
        super().data_received(data)

    def _go_on(self) -> None:
        """The protocol wants more, or some of it was taken."""
        if not self._held:
            self._valve.inner.resume_reading()
        elif self._valve.open and not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._due = False
        inner = self._valve.inner
        if inner.is_closing():
            self._held.clear()
        if not self._held or not self._valve.open:
            return
        piece = bytes(self._held[:TURN_BYTES])
        del self._held[:TURN_BYTES]
        self.take(piece)
        if (heir := inner.get_protocol()) is not self:
            # It has become a WebSocket.
            rest = bytes(self._held)
            self._held.clear()
            inner.resume_reading()
            if rest:
                heir.data_received(rest)
        elif self._valve.open:
            self._go_on()
