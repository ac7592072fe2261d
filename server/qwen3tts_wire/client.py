"""The client of ``qwen3tts.speech.v1`` over one persistent WebSocket."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

import websockets
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from .context import STOPPABLE, Context
from .dialling import DIRECT, check_address, closed, frame_log, refused
from .errors import (
    ConnectionLost,
    ProtocolError,
    ServerBusy,
    SpeechError,
    error_from_wire,
)
from .events import Alignment, Audio, Cancelled, Done, Event, Started
from .formats import AudioFormat
from .messages import PROTOCOL, ErrorInfo, Pong, ServerDraining, SessionCreated, VoiceReady
from .offset import ClockOffset
from .protocol import ClientEvent, ClientProtocol, Violation

__all__ = [
    "Alignment",
    "Audio",
    "Cancelled",
    "Context",
    "Done",
    "Event",
    "SpeechClient",
    "Started",
]

log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 4 << 20
"""A cancelled context's text, or a long list of voices, fits; nothing larger is ever sent."""
OUT_HIGH_BYTES = 64 << 10
"""With so much waiting to be written, ``append`` waits."""


PEER_PING_S = 5.0
PEER_TIMEOUT_S = 10.0
"""A server that does not answer a WebSocket ping for so long is gone."""
DONE_KEPT = 64
"""Contexts that are done and whose cancel still goes to the server."""


class SpeechClient:
    """One connection to a speech server; any number of contexts on it.

    >>> client = await SpeechClient.connect("ws://127.0.0.1:8765/v1/speech")
    >>> context = await client.open(voice="en")
    >>> await context.append("Good morning."); await context.end()
    >>> async for event in context: ...
    """

    def __init__(
        self,
        socket: ClientConnection,
        url: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        ping_interval: float = 5.0,
    ) -> None:
        self.url = url
        self.protocol = ClientProtocol()
        self.draining = asyncio.Event()
        """Set when the server has asked to leave: open new contexts on another connection."""
        self.error: SpeechError | None = None
        """Why the connection is over; None while it is not."""
        self._socket = socket
        self._clock = clock
        self._ping_interval = ping_interval
        self._offset = ClockOffset()
        self._contexts: dict[int, Context] = {}
        self._done: deque[Context] = deque()
        self._loads: dict[str, asyncio.Future[VoiceReady]] = {}
        self._load_numbers = itertools.count(1)
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        open_timeout: float = 5.0,
        ping_interval: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> SpeechClient:
        """Connect, and wait for the server's greeting and its first clock answer.

        ``open_timeout`` and ``ping_interval`` are seconds. The connection is direct: proxies of the
        environment are not used.

        Raises:
            BadRequest: ``url`` is no ``ws://`` or ``wss://`` address.
            ConnectionLost: nothing answers there in time.
            ProtocolError: what answers does not speak this protocol.
            ServerBusy: the server takes no connection now.
        """
        check_address(url)
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
                    **DIRECT,
                )
                if socket.subprotocol != PROTOCOL:
                    await socket.close(1002, f"{PROTOCOL} was not accepted")
                    raise ProtocolError(
                        f"What answers at {url} does not speak {PROTOCOL}.",
                        remedy="Check host, port and path; the path is /v1/speech.",
                    )
                client = cls(socket, url, clock=clock, ping_interval=ping_interval)
                try:
                    await client._begin()
                except BaseException:
                    await client.close()
                    raise
                return client
        except SpeechError:
            raise
        except TimeoutError as error:
            raise ConnectionLost(
                f"{url} did not answer within {open_timeout:g} s.",
                remedy="Check the address, and that the server is not overloaded.",
            ) from error
        except InvalidStatus as error:
            raise refused(url, error.response.status_code) from error
        except (InvalidHandshake, EOFError) as error:
            raise ProtocolError(
                f"What answers at {url} is not a WebSocket server.",
                remedy="Check host and port.",
            ) from error
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

    # --- what a caller uses ---

    @property
    def session(self) -> SessionCreated:
        """What the server said of itself: engine, model, voices, formats, limits."""
        if self.protocol.session is None:
            raise ProtocolError("The server has not greeted yet.")
        return self.protocol.session

    @property
    def closed(self) -> bool:
        """Whether the connection is over; ``error`` says why."""
        return self.error is not None

    @property
    def clock_offset_s(self) -> float:
        """The server's monotonic clock minus this client's, seconds."""
        return self._offset.best.offset_s

    @property
    def rtt_s(self) -> float:
        """Round trip of the ping that the offset comes from, seconds."""
        return self._offset.best.rtt_s

    async def open(
        self,
        voice: str | None = None,
        language: str | None = None,
        mode: str = "auto",
        format: AudioFormat | None = None,  # noqa: A002 - the field's name on the wire
        **options: Any,
    ) -> Context:
        """Open a context; does not wait for the server.

        ``options`` are further fields of ``context.open``: ``speed``, ``instructions``,
        ``sampling``, ``seed``, ``initial_codec_chunk_frames``, ``lead_ms``, ``window_ms``,
        ``pause_flush_ms``, ``context_id``. What the server refuses (a voice it does not have)
        comes out of the context.

        Raises:
            BadRequest: an option that is unknown or out of bounds.
            ConnectionLost: the connection is over.
            ServerBusy: the server has asked to leave.
        """
        if self.error is not None:
            raise self.error
        if self.draining.is_set():
            raise ServerBusy("The server is about to stop.", remedy="Connect again.")
        opened = self.protocol.send_open(
            voice=voice, language=language, mode=mode, format=format, **options
        )
        context = self._contexts[opened.context_no] = Context(self, opened)
        await self.flush_out()
        return context

    async def load_voice(
        self,
        ref_audio: bytes | None = None,
        ref_text: str | None = None,
        *,
        voice_id: str | None = None,
        x_vector_only: bool = False,
    ) -> VoiceReady:
        """Have a voice made of a sound file's bytes, or one that the server has stored made ready.

        ``ref_text`` is what is said in the file; without it the server finds out, where it can.
        ``x_vector_only`` takes only the colour of the voice from it. The ``voice_id`` of the answer
        is what ``open`` takes as ``voice``.

        Raises:
            BadRequest: the engine clones no voices, or not from this.
            UnknownVoice: the server knows no voice of that id.
            LimitExceeded: the file is larger than the server takes.
            ServerBusy: too many are being loaded.
            ConnectionLost: the connection is over.
        """
        if self.error is not None:
            raise self.error
        audio = None if ref_audio is None else base64.b64encode(ref_audio).decode()
        message = self.protocol.send_voice_load(
            f"v{next(self._load_numbers)}",
            voice_id=voice_id,
            ref_audio=audio,
            ref_text=ref_text,
            x_vector_only=x_vector_only,
        )
        answer: asyncio.Future[VoiceReady] = asyncio.get_running_loop().create_future()
        self._loads[message.request_id] = answer
        try:
            await self.flush_out()
            return await answer
        finally:
            self._loads.pop(message.request_id, None)

    async def close(self) -> None:
        """Leave. Contexts that are still read end with ConnectionLost."""
        self._lose(ConnectionLost("This side closed the connection."))
        await self._socket.close(1000, "done")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> SpeechClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # --- what contexts use ---

    def wake(self) -> None:
        """Something waits in the protocol to be written."""
        self._wake.set()

    async def flush_out(self) -> None:
        """Have it written; waits while too much waits."""
        self._wake.set()
        if self.error is None and self.protocol.outbox.size > OUT_HIGH_BYTES:
            self._room.clear()
        await self._room.wait()

    def forget(self, context: Context) -> None:
        """The context is over."""
        self._contexts.pop(context.context_no, None)
        self.protocol.forget(context.context_no)

    def keep_done(self, context: Context) -> None:
        """The context is done and may still be cancelled; only so many are kept for that."""
        self._done.append(context)
        if len(self._done) > DONE_KEPT:
            self.forget(self._done.popleft())

    # --- tasks ---

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """A task that breaks ends every context with an error; none may wait for ever."""
        try:
            await work
        except Exception:
            log.exception("a speech client broke")
            self._lose(ConnectionLost("The speech client broke.", remedy="The log has the reason."))
            await self._socket.close(1011, "the client broke")

    async def _read(self) -> None:
        try:
            async for data in self._socket:
                self.protocol.receive_data(data)
                for event in self.protocol.events_received():
                    self._handle(event)
                if self.error is not None:
                    code = 1002 if isinstance(self.error, ProtocolError) else 1000
                    await self._socket.close(code, self.error.message[:120])
                    return
            self._lose(closed(self._socket))
        except ConnectionClosed:
            self._lose(closed(self._socket))

    async def _write(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                await self._wake.wait()
                self._wake.clear()
                for each in self.protocol.data_to_send():
                    await self._socket.send(each)
                self._room.set()

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
        elif isinstance(event, VoiceReady):
            self._loaded(event.request_id, event)
        elif isinstance(event, Violation):
            self._violated(event)
        elif isinstance(event, SessionCreated):
            if event.protocol != PROTOCOL:
                self._lose(ProtocolError(f"The server speaks {event.protocol!r}, not {PROTOCOL}."))
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
            self._lose(error)
        elif context is not None and (event.ends == "context" or context.cancelling):
            # A cancel is answered by an error when the server has forgotten the context.
            self._contexts.pop(context.context_no, None)
            context.fail(error)
        else:
            log.warning("the speech server answered: %s", error)

    def _loaded(self, request_id: str, answer: VoiceReady | SpeechError) -> bool:
        """The answer to a ``voice.load``; False: nobody waits for it."""
        future = self._loads.get(request_id)
        if future is None or future.done():
            return False
        if isinstance(answer, SpeechError):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return True

    def _violated(self, event: Violation) -> None:
        context = None if event.context_no is None else self._contexts.get(event.context_no)
        if context is None:
            self._lose(event.error)
            return
        if self.protocol.state(context.context_no) in STOPPABLE:
            self.protocol.send_cancel(context.context_no)
            self.wake()
        self._contexts.pop(context.context_no, None)
        context.fail(event.error)

    def _lose(self, error: SpeechError) -> None:
        """The connection is over; every open context says so."""
        if self.error is not None:
            return
        self.error = error
        self._room.set()
        if not self._ready.done():
            self._ready.set_exception(error)
        for request_id in self._loads:
            self._loaded(request_id, type(error)(error.message, remedy=error.remedy))
        contexts, self._contexts = self._contexts, {}
        for context in contexts.values():
            # One exception each: each is raised, with its own traceback, by its own reader.
            context.fail(
                type(error)(error.message, remedy=error.remedy, context_id=context.context_id)
            )
