"""Connections over TCP or a WebSocket, accepted or opened."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.connection import Connection
from websockets.asyncio.server import broadcast
from websockets.exceptions import ConnectionClosed, ConnectionClosedOK, InvalidHandshake, InvalidURI
from websockets.protocol import State
from websockets.typing import Subprotocol

from qwen3tts_phone.errors import CalleeUnreachable, CallError
from qwen3tts_phone.streams.carriers.adapter import Message, StreamKind
from qwen3tts_phone.streams.settings import CLOSE_TIMEOUT_S, OPEN_TIMEOUT_S, StreamSettings

UNSENT_BYTES = 4096
"""Send buffer of one far end: a few frames. Backpressure of a stalled network then stops the
sending here, where an interruption can still flush what waits."""
READ_BYTES = 65_536


class StreamConnection(Protocol):
    peer: str
    address: object
    lost: str
    """Cause of a broken connection; empty = open or closed properly."""

    async def receive(self) -> Message | None:
        """Return the next message (TCP: some bytes); None at the end."""

    async def send(self, messages: Sequence[Message]) -> None:
        """Send in order, with backpressure. Harmless at the end."""

    def send_now(self, messages: Sequence[Message]) -> None:
        """Send synchronously, in order. Harmless at the end."""

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close; ``code``: RFC 6455 section 7.4, unused over TCP."""


class WebSocketConnection:
    def __init__(self, connection: Connection) -> None:
        self.address: object = connection.remote_address
        self.peer = socket_address(connection.remote_address)
        self.lost = ""
        self._connection = connection
        limit_unsent_bytes(connection.transport)

    async def receive(self) -> Message | None:
        try:
            message = await self._connection.recv()
        except ConnectionClosedOK:
            return None
        except ConnectionClosed as error:
            self.lost = _why_closed(error)
            return None
        return message if isinstance(message, str) else bytes(message)

    async def send(self, messages: Sequence[Message]) -> None:
        # All is handed over before waiting: messages of `send_now` must not come in between.
        if not messages or self._connection.state is not State.OPEN:
            return
        self.send_now(messages[:-1])
        with contextlib.suppress(ConnectionClosed):
            await self._connection.send(messages[-1])

    def send_now(self, messages: Sequence[Message]) -> None:
        for message in messages:
            broadcast([self._connection], message)

    async def close(self, code: int = 1000, reason: str = "") -> None:
        await self._connection.close(code, reason)


class TcpConnection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.address: object = writer.get_extra_info("peername")
        self.peer = socket_address(self.address)
        self.lost = ""
        self._reader = reader
        self._writer = writer
        writer.transport.set_write_buffer_limits(high=UNSENT_BYTES)
        limit_unsent_bytes(writer.transport)

    async def receive(self) -> bytes | None:
        try:
            return await self._reader.read(READ_BYTES) or None
        except ConnectionResetError:
            return None  # our last bytes were not read: a normal close
        except OSError as error:
            self.lost = type(error).__name__
            return None

    async def send(self, messages: Sequence[Message]) -> None:
        self.send_now(messages)
        with contextlib.suppress(OSError):
            await self._writer.drain()

    def send_now(self, messages: Sequence[Message]) -> None:
        if not self._writer.is_closing():
            self._writer.write(b"".join(_bytes(each) for each in messages))

    async def close(self, code: int = 1000, reason: str = "") -> None:
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self._writer.transport.abort()


class _NoDebug(logging.LoggerAdapter[logging.Logger]):
    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name of logging
        return level > logging.DEBUG and super().isEnabledFor(level)


def library_logger() -> logging.LoggerAdapter[logging.Logger]:
    return _NoDebug(logging.getLogger("qwen3tts_phone.streams.websocket"), {})


def limit_unsent_bytes(transport: asyncio.BaseTransport) -> None:
    raw: Any = transport.get_extra_info("socket")
    if raw is None:  # no socket, in tests
        return
    with contextlib.suppress(OSError):
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Linux and macOS only.
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)


def socket_address(name: Any) -> str:
    if not isinstance(name, tuple) or len(name) < 2:
        return ""
    host = f"[{name[0]}]" if ":" in str(name[0]) else str(name[0])
    return f"{host}:{name[1]}"


def _bytes(message: Message) -> bytes:
    return message.encode() if isinstance(message, str) else message


def _why_closed(error: ConnectionClosed) -> str:
    ours, theirs = error.sent, error.rcvd
    if theirs is not None and (ours is None or error.rcvd_then_sent):
        return f"closed by the far end with code {int(theirs.code)}"
    if ours is not None and int(ours.code) == 1009:
        return "a message was too large"
    if ours is not None and int(ours.code) in (1002, 1007):
        return "an invalid WebSocket message"
    if ours is not None and int(ours.code) == 1011:
        return "the far end answered no ping"
    return "the connection broke"


async def open_websocket(
    url: str,
    kind: StreamKind,
    settings: StreamSettings,
    headers: Mapping[str, str] | None,
    tls: ssl.SSLContext | None,
) -> ClientConnection:
    try:
        return await connect(
            url,
            subprotocols=[Subprotocol(each) for each in kind.subprotocols] or None,
            additional_headers=dict(headers or {}),
            ssl=tls,
            compression=None,
            proxy=None,
            open_timeout=OPEN_TIMEOUT_S,
            close_timeout=CLOSE_TIMEOUT_S,
            ping_interval=settings.ping_s or None,
            ping_timeout=settings.ping_s or None,
            max_size=settings.max_message_bytes,
            write_limit=UNSENT_BYTES,
            logger=library_logger(),
        )
    except (OSError, TimeoutError) as error:
        raise CalleeUnreachable(
            f"No WebSocket could be opened: {type(error).__name__}.",
            remedy="Check the address, and that the far end listens there.",
            why="refused" if isinstance(error, ConnectionRefusedError) else "timeout",
        ) from error
    except (InvalidHandshake, InvalidURI) as error:
        raise CallError(
            f"No WebSocket could be opened: {type(error).__name__}.",
            remedy="Check the path and the password; the far end's log says more.",
        ) from error
