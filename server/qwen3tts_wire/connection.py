"""Connection to a speech server: contexts and clock offset."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, fields
from typing import Any, Protocol

import websockets
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from qwen3tts_wire.addresses import (
    DIRECT,
    close_error,
    frame_log,
    handshake_error,
    key_headers,
    tls_error,
)
from qwen3tts_wire.client_end import ClientProtocol
from qwen3tts_wire.context import STOPPABLE, Context
from qwen3tts_wire.endpoint import ClientEvent, Violation
from qwen3tts_wire.errors import (
    ConnectionLost,
    ProtocolError,
    ServerBusy,
    SpeechError,
    error_from_wire,
)
from qwen3tts_wire.messages import (
    MIN_WINDOW_MS,
    PROTOCOL,
    ContextOpen,
    ErrorInfo,
    Pong,
    ServerDraining,
    SessionCreated,
    VoiceReady,
)


@dataclass(frozen=True)
class OffsetSample:
    """One ping."""

    offset_s: float
    rtt_s: float


class ClockOffset:
    """Server's monotonic clock minus ours, from the recent ping of least round trip.

    Its error is at most half the round trip (as RFC 5905 section 8).
    """

    def __init__(self, keep: int = 8) -> None:
        self._samples: deque[OffsetSample] = deque(maxlen=keep)

    def add(self, sent: float, received: float, answered: float, returned: float) -> None:
        """Add times sent, received there, sent there, received; seconds."""
        rtt = max(0.0, (returned - sent) - (answered - received))
        offset = ((received - sent) + (answered - returned)) / 2
        self._samples.append(OffsetSample(offset, rtt))

    @property
    def known(self) -> bool:
        return bool(self._samples)

    @property
    def best(self) -> OffsetSample:
        """Best sample; zero before the first ping."""
        return min(self._samples, key=lambda each: each.rtt_s, default=OffsetSample(0.0, 0.0))


log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 4 << 20
"""Holds a cancelled context's text, or a long list of voices."""
OUT_HIGH_BYTES = 64 << 10
"""Outbox size at which ``append`` waits (backpressure)."""
PEER_PING_S = 5.0
PEER_TIMEOUT_S = 10.0
"""Timeout of a WebSocket ping."""
SAME_VERSION = "Look at the server's log, and run the same version at both ends."
DONE_KEPT = 64
"""Done contexts that can still be cancelled."""


class ConnectionOwner(Protocol):
    """Receiver of a connection's events."""

    def lost(
        self, connection: ServerConnection, contexts: list[Context], error: SpeechError
    ) -> None: ...

    def leaving(self, connection: ServerConnection) -> None: ...


class ServerConnection:
    """WebSocket to a server: protocol, contexts, voice loads."""

    def __init__(
        self,
        socket: ClientConnection,
        owner: ConnectionOwner,
        url: str,
        *,
        clock: Callable[[], float],
        ping_interval: float,
        last_no: int = 0,
    ) -> None:
        self.url = url
        self.protocol = ClientProtocol(last_no)
        self.draining = asyncio.Event()
        self.left = asyncio.Event()
        """Set once no context can be opened."""
        self.error: SpeechError | None = None
        """Error that ended it, or None."""
        self.loads: dict[str, asyncio.Future[VoiceReady]] = {}
        """Pending voice loads, by request."""
        self.socket = socket
        self.room = asyncio.Event()
        """Set while the outbox has room."""
        self.room.set()
        self._owner = owner
        self._clock = clock
        self._ping_interval = ping_interval
        self._offset = ClockOffset()
        self._contexts: dict[int, Context] = {}
        self._done: deque[Context] = deque()
        self._wake = asyncio.Event()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def dial(
        cls,
        url: str,
        owner: ConnectionOwner,
        *,
        open_timeout: float,
        ping_interval: float,
        clock: Callable[[], float],
        last_no: int = 0,
        api_key: str | None = None,
    ) -> ServerConnection:
        """Connect, greeting and clock included; see SpeechClient."""
        try:
            async with asyncio.timeout(open_timeout):
                socket = await connect(
                    url,
                    subprotocols=[websockets.Subprotocol(PROTOCOL)],
                    # Speech does not shrink, and deflate costs time on every message.
                    compression=None,
                    max_size=MAX_MESSAGE_BYTES,
                    open_timeout=None,
                    ping_interval=PEER_PING_S,
                    ping_timeout=PEER_TIMEOUT_S,
                    close_timeout=2,
                    logger=frame_log(),
                    additional_headers=key_headers(api_key),
                    **DIRECT,
                )
                if socket.subprotocol != PROTOCOL:
                    await socket.close(1002, f"{PROTOCOL} was not accepted")
                    raise ProtocolError(
                        f"What answers at {url} does not speak {PROTOCOL}.",
                        remedy="Check host, port and path; the path is /v1/speech.",
                    )
                connection = cls(
                    socket, owner, url, clock=clock, ping_interval=ping_interval, last_no=last_no
                )
                try:
                    await connection._begin()
                except BaseException:
                    await connection.close()
                    raise
                return connection
        except SpeechError:
            raise
        except TimeoutError as error:
            raise ConnectionLost(
                f"{url} did not answer within {open_timeout:g} s.",
                remedy="Check the address, and that the server is not overloaded.",
            ) from error
        except InvalidStatus as error:
            raise handshake_error(url, error.response.status_code) from error
        except (InvalidHandshake, EOFError) as error:
            raise ProtocolError(
                f"What answers at {url} is not a WebSocket server.",
                remedy="Check host and port.",
            ) from error
        except ssl.SSLError as error:
            raise tls_error(url, error) from error
        except OSError as error:
            raise ConnectionLost(
                f"No speech server answers at {url}: {error.strerror or error}.",
                remedy="Start one with 'mr-qwen3tts serve', or correct the address.",
            ) from error

    async def _begin(self) -> None:
        self._tasks = [
            asyncio.create_task(self._guarded(work), name=f"speech client {name}")
            for name, work in (
                ("reader", self._read()),
                ("writer", self._write()),
                ("ping", self._ping()),
            )
        ]
        await self._ready

    @property
    def offset_s(self) -> float:
        return self._offset.best.offset_s

    @property
    def rtt_s(self) -> float:
        return self._offset.best.rtt_s

    @property
    def usable(self) -> bool:
        return not self.left.is_set()

    @property
    def idle(self) -> bool:
        return not self.loads and all(each.over for each in self._contexts.values())

    async def close(self) -> None:
        self.lose(ConnectionLost("This side closed the connection."))
        await self.socket.close(1000, "done")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- what contexts use ---

    def open(self, *, resumable: bool, **options: Any) -> Context:
        opened = self.protocol.send_open(**options)
        context = Context(self, opened, resumable=resumable)
        self._contexts[opened.context_no] = context
        return context

    def reopen(self, context: Context, opened: ContextOpen, window_ms: float) -> ContextOpen:
        """Reopen a context ``opened`` elsewhere."""
        options = {each.name: getattr(opened, each.name) for each in fields(opened)}
        del options["context_no"]
        options["window_ms"] = max(MIN_WINDOW_MS, window_ms)
        again = self.protocol.send_open(**options)
        self._contexts[again.context_no] = context
        return again

    def wake(self) -> None:
        self._wake.set()

    async def flush_out(self) -> None:
        """Write the outbox; wait while it is full (backpressure)."""
        self._wake.set()
        if self.error is None and self.protocol.outbox.size > OUT_HIGH_BYTES:
            self.room.clear()
        await self.room.wait()

    def has(self, context: Context) -> bool:
        return context in self._contexts.values()

    def forget(self, context: Context) -> None:
        self._contexts.pop(context.context_no, None)
        self.protocol.forget(context.context_no)

    def keep_done(self, context: Context) -> None:
        """Keep a done context for a cancel; the oldest are forgotten."""
        self._done.append(context)
        if len(self._done) > DONE_KEPT:
            self.forget(self._done.popleft())

    # --- tasks ---

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception:
            log.exception("a speech client broke")
            # No ConnectionLost by its kind: another server would not help.
            self.lose(ClientBroke("The speech client broke.", remedy="The log has the reason."))
            await self.socket.close(1011, "the client broke")

    async def _read(self) -> None:
        try:
            async for data in self.socket:
                self.protocol.receive_data(data)
                for event in self.protocol.events_received():
                    self._handle(event)
                if self.error is not None:
                    code = 1002 if isinstance(self.error, ProtocolError) else 1000
                    await self.socket.close(code, self.error.message[:120])
                    return
            self.lose(close_error(self.socket))
        except ConnectionClosed:
            self.lose(close_error(self.socket))

    async def _write(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                await self._wake.wait()
                self._wake.clear()
                for each in self.protocol.data_to_send():
                    await self.socket.send(each)
                self.room.set()

    async def _ping(self) -> None:
        # The first few come close together: the offset is the one of the quickest answer.
        waits = [0.05, 0.1, 0.2]
        while self.error is None:
            self.protocol.send_ping(self._clock() * 1000)
            self.wake()
            await asyncio.sleep(waits.pop(0) if waits else self._ping_interval)

    def _handle(self, event: ClientEvent) -> None:
        now = self._clock()
        if isinstance(event, Pong):
            self._offset.add(
                event.client_time_ms / 1000, event.received_ms / 1000, event.sent_ms / 1000, now
            )
            if not self._ready.done() and self.protocol.session is not None:
                self._ready.set_result(None)
        elif isinstance(event, ServerDraining):
            self.draining.set()
            self.left.set()
            self._owner.leaving(self)
        elif isinstance(event, VoiceReady):
            self._loaded(event.request_id, event)
        elif isinstance(event, Violation):
            self._violated(event)
        elif isinstance(event, SessionCreated):
            if event.protocol != PROTOCOL:
                self.lose(ProtocolError(f"The server speaks {event.protocol!r}, not {PROTOCOL}."))
        elif isinstance(event, ErrorInfo):
            self._error(event)
        else:
            number = getattr(event, "context_no", None)
            context = (
                self._contexts.get(number)
                if number is not None
                else self._by_id(getattr(event, "context_id", ""))
            )
            if context is not None:
                try:
                    context.take(event, now)
                except ProtocolError as error:
                    self._violated(Violation(error, context.context_no))

    def _by_id(self, context_id: str) -> Context | None:
        return next((c for c in self._contexts.values() if c.context_id == context_id), None)

    def _error(self, event: ErrorInfo) -> None:
        error = error_from_wire(
            event.code, event.message, remedy=event.remedy, context_id=event.context_id
        )
        context = self._by_id(event.context_id or "")
        if event.request_id is not None and self._loaded(event.request_id, error):
            return
        if event.ends == "connection":
            self.lose(error)
        elif context is not None and (event.ends == "context" or context.cancelling):
            # A cancel is answered by an error when the server has forgotten the context.
            if isinstance(error, ServerBusy) and (self.draining.is_set() or context.joining):
                self._owner.lost(self, [context], error)
            else:
                context.fail(error)
            self._contexts.pop(context.context_no, None)
        else:
            log.warning("the speech server answered: %s", error)

    def _loaded(self, request_id: str, answer: VoiceReady | SpeechError) -> bool:
        future = self.loads.get(request_id)
        if future is None or future.done():
            return False
        if isinstance(answer, SpeechError):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return True

    def _violated(self, event: Violation) -> None:
        event.error.remedy = event.error.remedy or SAME_VERSION
        context = None if event.context_no is None else self._contexts.get(event.context_no)
        if context is None:
            self.lose(event.error)
            return
        if self.protocol.state(context.context_no) in STOPPABLE:
            self.protocol.send_cancel(context.context_no)
            self.wake()
        self._contexts.pop(context.context_no, None)
        context.fail(event.error)

    def lose(self, error: SpeechError) -> None:
        """End it; open contexts fail or go elsewhere."""
        if self.error is not None:
            return
        self.error = error
        self.left.set()
        self.room.set()
        if not self._ready.done():
            self._ready.set_exception(error)
        for request_id in self.loads:
            self._loaded(request_id, type(error)(error.message, remedy=error.remedy))
        contexts = list(self._contexts.values())
        self._owner.lost(self, contexts, error)
        self._contexts.clear()


class ClientBroke(ConnectionLost):
    """An internal error of the client."""
