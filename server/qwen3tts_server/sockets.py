"""Bounded HTTP and WebSocket connections for uvicorn.

Beyond uvicorn's own bounds: sockets by address, times of a request's head and body and of
clients that do not read, and turns, as asyncio hands over up to 256 KiB (40,000 WebSocket
frames: half a second of work).
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.protocol import State

from qwen3tts_server.gate import group_of
from qwen3tts_server.settings import AccessSettings

TURN_BYTES = 4096
"""Bytes of one connection a turn; at most some 10 ms."""


class ReadGate:
    """Transport and its protocol's pause state; turns pause it too."""

    def __init__(self, inner: Any, on_open: Callable[[], None]) -> None:
        self.inner = inner
        self.open = True
        self._on_open = on_open

    def pause_reading(self) -> None:
        self.open = False
        self.inner.pause_reading()

    def resume_reading(self) -> None:
        self.open = True
        self._on_open()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class TurnedProtocol(asyncio.Protocol):
    """Mixin: at most TURN_BYTES a turn of the loop."""

    def connection_made(self, transport: Any) -> None:
        self._held = bytearray()
        """Received bytes not yet processed; while there are some, reading is paused."""
        self._due = False
        inner = transport.inner if isinstance(transport, ReadGate) else transport
        self._valve = ReadGate(inner, self._go_on)
        super().connection_made(self._valve)  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        if not self._held and len(data) <= TURN_BYTES:
            self.take(data)
            return
        self._held += data
        self._valve.inner.pause_reading()
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._held.clear()
        super().connection_lost(exc)

    def take(self, data: bytes) -> None:
        super().data_received(data)

    def _go_on(self) -> None:
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


GRACE_S = 2.0
"""Time for the last bytes."""
HEAD_BYTES = 16 * 1024
"""Size of a request's head."""


class SocketCounter:
    """Open sockets by address."""

    def __init__(self, settings: AccessSettings) -> None:
        self.settings = settings
        self.open = 0
        self._by_address: Counter[str] = Counter()

    def came(self, address: str) -> bool:
        """Count a socket; False: too many, not counted."""
        most, most_each = self.settings.max_sockets, self.settings.max_sockets_per_address
        if most and self.open >= most:
            return False
        if most_each and address and self._by_address[address] >= most_each:
            return False
        self.open += 1
        self._by_address[address] += 1
        return True

    def went(self, address: str) -> None:
        self.open -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


class _Timers:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def start(self, name: str, seconds: float, act: Any) -> None:
        if name not in self._timers:
            self._timers[name] = self._loop.call_later(seconds, self._due, name, act)

    def stop(self, *names: str) -> None:
        for name in names or tuple(self._timers):
            if (timer := self._timers.pop(name, None)) is not None:
                timer.cancel()

    def _due(self, name: str, act: Any) -> None:
        del self._timers[name]
        act()


class BoundedConfig(uvicorn.Config):
    """uvicorn's configuration with the counter."""

    def __init__(self, app: Any, sockets: SocketCounter, **options: Any) -> None:
        super().__init__(app, http=BoundedHttp, ws=BoundedWebSocket, **options)
        self.sockets = sockets


class BoundedProtocol(TurnedProtocol):
    """Mixin: counts sockets, bounds clients that do not read."""

    transport: Any
    sockets: SocketCounter
    address: str | None = None
    """As counted."""
    timers: _Timers | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timers is not None:
            self.timers.stop()
        if self.address is not None:
            self.sockets.went(self.address)
            self.address = None
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.timers is not None:
            self.timers.start(
                "unread", self.sockets.settings.unread_timeout_s, self.transport.abort
            )

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.timers is not None:
            self.timers.stop("unread")


class BoundedWebSocket(BoundedProtocol, WebSocketsSansIOProtocol):
    """WebSocket with a bound on unread data."""

    def __init__(self, config: BoundedConfig, *args: Any, **options: Any) -> None:
        super().__init__(config, *args, **options)
        self.sockets = config.sockets
        self.pong: bytes | None = None
        """Waits until the client reads."""

    def connection_made(self, transport: Any) -> None:
        self.timers = _Timers(self.loop)
        super().connection_made(transport)

    def take(self, data: bytes) -> None:
        super().take(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            # This parser is stricter than HTTP's, and closes without an answer.
            self.handshake_initiated = True
            remedy = "Send RFC 6455's handshake: no body, header lines of at most 8 KiB."
            what = "This is no request for a WebSocket."
            self.transport.write(_answer(400, "bad_request", f"{what} {remedy}"))
            self.transport.close()
            self.loop.call_later(GRACE_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        pong, self.pong = self.pong, None
        if pong is not None and self.conn.state is State.OPEN:
            self.transport.write(pong)

    async def send(self, message: Any) -> None:
        await super().send(message)
        if self.close_sent and self.initial_response is not None:
            # Refused, which is complete; else uvicorn writes an error into the log for each.
            self.handshake_complete = True

    def handle_ping(self) -> None:
        if self.transport.is_closing():
            return
        if self.writable.is_set() or self.conn.state is not State.OPEN:
            super().handle_ping()
        elif pongs := self.conn.data_to_send():
            # Of the pings of a client that takes nothing, the last is answered when it does
            # (RFC 6455 section 5.5.3); else it could make all memory one of pongs.
            self.pong = pongs[-1]

    def handle_cont(self, event: Frame) -> None:
        # A list of pieces of a byte each would be fifty times as long as what they hold.
        whole: Any = self.frames[0] if self.frames else b""
        if not isinstance(whole, bytearray):
            whole = bytearray(whole)
        whole += event.data
        self.frames = [bytes(whole) if event.fin else whole]
        if event.fin:
            self.send_receive_event_to_app()

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not self.close_sent:
            self.frames = [b"".join(self.frames)]
            try:
                self.frames[0].decode()
            except UnicodeDecodeError:
                # uvicorn does the same, and writes a traceback into the log for each.
                self.conn.send_close(1007)
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()

    def keepalive_timeout(self) -> None:
        # A close waits until all is sent, to a client that takes nothing for ever.
        super().keepalive_timeout()
        if self.timers is not None:
            self.timers.start("gone", GRACE_S, self.transport.abort)


class BoundedHttp(BoundedProtocol, H11Protocol):
    """HTTP with time bounds on head and body."""

    def __init__(self, config: BoundedConfig, *args: Any, **options: Any) -> None:
        super().__init__(config, *args, **options)
        self.conn = _OneLength(h11.SERVER, HEAD_BYTES)
        self.sockets = config.sockets

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        address = group_of(self.client[0]) if self.client else ""
        if not self.sockets.came(address):
            self._tell(503, "server_busy", "The server has all the connections it takes.")
            return
        self.address = address
        self.timers = _Timers(self.loop)
        self._watch()

    def take(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().take(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # What may come next is bounded by uvicorn's own time between two requests.
        if self.conn.their_state is not h11.IDLE or self.conn.trailing_data[0]:
            self._watch()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        if self.timers is not None:
            self.timers.stop()
        super().handle_websocket_upgrade(event)
        protocol = self.transport.get_protocol()
        if isinstance(protocol, BoundedWebSocket):
            protocol.address, self.address = self.address, None

    def _watch(self) -> None:
        if self.timers is None or self.transport.is_closing():
            return
        if self.transport.get_protocol() is not self:
            return
        state = self.conn.their_state
        if state is h11.IDLE:
            self.timers.stop("body")
            self.timers.start("head", self.sockets.settings.head_timeout_s, self._late)
        elif state is h11.SEND_BODY:
            self.timers.stop("head")
            self.timers.start("body", self.sockets.settings.body_timeout_s, self._late)
        else:
            self.timers.stop("head", "body")

    def _late(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            # The application learns that the client is gone.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._tell(408, "request_timeout", "The request did not come in time.")

    def _tell(self, status: int, code: str, message: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_answer(status, code, message))
        self.transport.close()
        self.loop.call_later(GRACE_S, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            remedy = "Send HTTP/1.1 with a head of at most 16 KiB."
            self.transport.write(_answer(400, "bad_request", f"{msg} {remedy}"))
        self.transport.close()


class _OneLength(h11.Connection):
    """Refusal of two lengths (RFC 9112 section 6.3, request smuggling)."""

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if names >= {b"content-length", b"transfer-encoding"}:
                raise h11.RemoteProtocolError("two lengths")
        return event


def _answer(status: int, code: str, message: str) -> bytes:
    phrase = {400: "Bad Request", 408: "Request Timeout", 503: "Service Unavailable"}[status]
    kind = "server_error" if status >= 500 else "invalid_request_error"
    error = {"message": message, "type": kind, "param": None, "code": code}
    body = json.dumps({"error": error}).encode()
    retry = "retry-after: 1\r\n" if status == 503 else ""
    head = (
        f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\n{retry}"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
