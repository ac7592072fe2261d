"""The engine and the connections of one server."""

from __future__ import annotations

import asyncio
import contextlib

from starlette.websockets import WebSocket

from qwen3tts_engine.base import Engine
from qwen3tts_wire.messages import PROTOCOL

from .connection import Connection
from .settings import ServerSettings

CLOSE_GRACE_S = 2.0
"""Time for clients to answer the close of their connection."""


class Service:
    """What all connections of a server share."""

    def __init__(self, engine: Engine, settings: ServerSettings) -> None:
        self.engine = engine
        self.settings = settings
        self.started = False
        self.draining = False
        self._connections: set[Connection] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def connections(self) -> int:
        """Connections now open."""
        return len(self._connections)

    async def start(self) -> None:
        """Make the engine ready; raises what it raises. A second call does nothing."""
        if not self.started:
            await self.engine.start()
            self.started = True

    async def close(self) -> None:
        """Free the engine."""
        if self.started:
            self.started = False
            await self.engine.close()

    async def drain(self, within_s: float | None = None) -> None:
        """Let all contexts finish, for at most so long, then close all connections."""
        if within_s is None:
            within_s = self.settings.drain_timeout_s
        self.draining = True
        for connection in list(self._connections):
            connection.drain(within_s)
        with contextlib.suppress(TimeoutError):
            # A client that reads nothing can hold a close back; it is cut off then.
            await asyncio.wait_for(self._idle.wait(), within_s + CLOSE_GRACE_S)

    async def speak(self, socket: WebSocket) -> None:
        """Serve one WebSocket of ``qwen3tts.speech.v1`` until it ends."""
        if PROTOCOL not in socket.scope.get("subprotocols", ()):
            await socket.accept()
            await socket.close(1002, f"the subprotocol {PROTOCOL} is required")
            return
        await socket.accept(subprotocol=PROTOCOL)
        if self.draining or not self.started:
            await socket.close(1013, "the server is stopping or not ready; try again later")
            return
        if len(self._connections) >= self.settings.max_connections:
            await socket.close(1013, "the server has all the connections it takes")
            return
        connection = Connection(socket, self.engine, self.settings)
        self._connections.add(connection)
        self._idle.clear()
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
            if not self._connections:
                self._idle.set()
