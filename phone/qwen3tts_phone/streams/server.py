"""Server of calls over media streams, of any number of kinds.

>>> async with Streams(StreamSettings(kinds=("audiosocket",), port=9019)) as streams:
...     async for call in streams:
...         await call.answer()
...         await call.say("Good morning.")
...         await call.hangup()
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self

from websockets.asyncio.server import Server, ServerConnection

from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_pacer.policy import FillingPolicy
from qwen3tts_phone.call.core import CallCore, CallVoice
from qwen3tts_phone.call.incoming import SpeechOutages
from qwen3tts_phone.detection.recogniser import RecogniserPool
from qwen3tts_phone.errors import CalleeUnreachable, CallError
from qwen3tts_phone.facts import CallFacts, MediaFacts
from qwen3tts_phone.limits import ConnectionLimiter, PendingLimits, TokenBucket
from qwen3tts_phone.records.store import CallStore
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_phone.streams.admission import StreamAdmission, watch_event_loop
from qwen3tts_phone.streams.call import StreamCall
from qwen3tts_phone.streams.carriers import CARRIERS, carrier_kind
from qwen3tts_phone.streams.carriers.adapter import Handshake, Refused, StreamAdapter, StreamKind
from qwen3tts_phone.streams.carriers.audiosocket import AudioSocketAdapter, audiosocket
from qwen3tts_phone.streams.connection import (
    StreamConnection,
    TcpConnection,
    WebSocketConnection,
    open_websocket,
    socket_address,
)
from qwen3tts_phone.streams.listeners import (
    HandshakeHandler,
    listen_tcp,
    listen_websocket,
    require_authentication,
    warn_unauthenticated,
)
from qwen3tts_phone.streams.settings import StreamSettings
from qwen3tts_speech.link import SpeechLink
from qwen3tts_speech.record_sinks import RecordSink, open_records
from qwen3tts_speech.voice_process import DEFAULT_URL, on_stderr, voice_server
from qwen3tts_wire.errors import MOST_SENTENCE_CHARS, log_text
from qwen3tts_wire.process import heap, raise_descriptor_limit

FILES_A_CALL = 4

logger = logging.getLogger(__name__)

__all__ = ["StreamCall", "StreamSettings", "Streams"]

MAX_AGENT_CHARS = 200
UNBEGUN_PER_S, UNBEGUN_BURST = 0.1, 20
"""Rate of records of streams that never started."""
LATER_S = 1.0
"""A connection without a call is closed this time after ``start_s``, if its watchdog has not."""
AUDIOSOCKET = audiosocket()


class Streams:
    """Server of media streams with a speech connection; an async context manager.

    A given ``link`` may be shared; it is neither checked nor closed. ``changes`` are fields of the
    settings. ``announce`` gets a line when a voice is started, as with `Phone`.

    Entering it raises PortBusy, BadCertificate, ConnectionLost (no speech server), UnknownVoice,
    BadRequest (an unknown option, a carrier without a key) or OSError (a log or folder that cannot
    be written).
    """

    def __init__(
        self,
        settings: StreamSettings | None = None,
        *,
        clock: Clock | None = None,
        link: SpeechLink | None = None,
        announce: Callable[[str], None] | None = on_stderr,
        **changes: Any,
    ) -> None:
        self.settings = replace(settings or StreamSettings(), **changes)
        self.clock: Clock = clock or LoopClock()
        self._own_link = link is None
        self.link = SpeechLink(self.settings.server_url or DEFAULT_URL) if link is None else link
        self._announce = announce or (lambda line: None)
        self.calls: set[StreamCall] = set()
        self.recognisers = RecogniserPool()
        self.kinds: dict[str, StreamKind] = {}
        self.port = 0
        self.audiosocket_port = 0
        """The TCP port of AudioSocket; 0 = not listening."""
        self._outages = SpeechOutages(self.link, self.settings.unavailable_file)
        self._admission = StreamAdmission(self.settings)
        self._incoming: asyncio.Queue[StreamCall | None] = asyncio.Queue()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._idle = asyncio.Event()
        self._learnt: Mapping[str, Any] = {}
        self._records: RecordSink | None = None
        self._web: list[Server] = []
        self._tcp: list[asyncio.Server] = []
        most, per_host = self.settings.max_pending, self.settings.max_pending_per_address
        limits = PendingLimits(most, per_host, self.settings.start_s + LATER_S)
        self._door = ConnectionLimiter(limits, self.clock)
        self._unbegun = TokenBucket(UNBEGUN_PER_S, UNBEGUN_BURST, self.clock.now())
        self._unlogged = 0
        self._begun: dict[StreamCall, str] = {}
        self._watching: list[asyncio.Task[None]] = []
        self._front: HandshakeHandler
        self._stack = AsyncExitStack()
        self._files: CallStore

    async def __aenter__(self) -> Self:
        settings = self.settings
        self._idle.set()
        raise_descriptor_limit(FILES_A_CALL * settings.max_calls + settings.max_pending)
        async with AsyncExitStack() as stack:
            self.kinds = {
                kind.name: kind
                for kind in (
                    each if isinstance(each, StreamKind) else carrier_kind(each)
                    for each in settings.kinds
                    if each != "audiosocket"
                )
            }
            require_authentication(settings, self.kinds.values())
            if self._own_link:
                self.link.url = await voice_server(stack, settings.server_url, self._announce)
                stack.push_async_callback(self.link.close)
                await self.link.check(settings.speech)
            self._records = await open_records(stack, settings.latency_log, settings.otel)
            self._files = CallStore(
                settings.records or RecordSettings(), settings.record_path, self.clock
            )
            stack.push_async_callback(self._files.close)
            self._files.start()
            stack.push_async_callback(self.recognisers.close)
            stack.push_async_callback(self._close)
            await self._listen()
            busy = heap.held_by if settings.freeze_heap else heap.heeds
            stack.enter_context(busy(lambda: bool(self.calls)))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, traceback)

    # --- calls

    def __aiter__(self) -> AsyncIterator[StreamCall]:
        return self.incoming()

    async def incoming(self) -> AsyncIterator[StreamCall]:
        while (call := await self._incoming.get()) is not None:
            if not call.over:
                yield call
        self._incoming.put_nowait(None)

    async def connect(
        self,
        url: str,
        kind: str | StreamKind = "asterisk",
        *,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> StreamCall:
        """Open a stream from here, such as to Asterisk's ``ws://HOST:8088/media/ID``.

        Returns when the far end has identified the call. ``ID`` is the channel variable
        MEDIA_WEBSOCKET_CONNECTION_ID of a channel dialled as ``WebSocket/INCOMING``.

        Raises:
            CalleeUnreachable: no answer, or no stream.
            CallError: invalid ``url``, or a refused connection.
        """
        chosen = self._kind(kind)
        secure = url.startswith("wss:")
        try:
            adapter = chosen.make(Handshake(secure=secure))
        except Refused as error:
            raise CallError(f"A {chosen.name} stream cannot be opened from here.") from error
        connection = await open_websocket(url, chosen, self.settings, headers, tls)
        wire = WebSocketConnection(connection)
        host = socket_address(connection.remote_address).rpartition(":")[0]
        call = self._new_call(wire, adapter, chosen, "wss" if secure else "ws")
        self._enter(call, host)
        running = self._start(self._run(call), "stream")
        try:
            await call.started.wait()
        except asyncio.CancelledError:
            self._start(call.hangup(), "end of an abandoned stream")
            raise
        if call.sink is None:
            await asyncio.wait([running])
            raise CalleeUnreachable(
                f"The stream did not start: {await call.ended()}.",
                remedy="Check that a channel waits under that connection id.",
                why="session",
            )
        return call

    def _kind(self, kind: str | StreamKind) -> StreamKind:
        if isinstance(kind, StreamKind):
            return kind
        if kind in CARRIERS and CARRIERS[kind].over_tcp:
            raise ValueError(f"kind: {kind} is not a WebSocket, it connects to us")
        return self.kinds.get(kind) or carrier_kind(kind)

    async def drain(self) -> None:
        self._admission.draining = True
        self._incoming.put_nowait(None)

    async def drained(self) -> None:
        await self._idle.wait()

    # --- listening

    async def _listen(self) -> None:
        settings = self.settings
        if self.kinds:
            secure = settings.certificate is not None
            self._front = HandshakeHandler(
                self.kinds, self._admission, self._outages, secure=secure
            )
            self._web = await listen_websocket(
                settings, self._door, self._front, self._web_connection
            )
            self.port = next(iter(self._web[0].sockets)).getsockname()[1]
        if settings.over_tcp:
            alone = not self.kinds and not settings.audiosocket_port
            port = settings.port if alone else settings.audiosocket_port
            self._tcp = await listen_tcp(settings, self._door, port, self._tcp_connection)
            self.audiosocket_port = self._tcp[0].sockets[0].getsockname()[1]
        self._watching = [
            asyncio.create_task(self._door.keep_time(), name="pending streams"),
            asyncio.create_task(
                watch_event_loop(self._admission, self.clock), name="pacing of streams"
            ),
        ]
        warn_unauthenticated(settings, self.kinds.values(), self.port, self.audiosocket_port)

    # --- connections

    async def _web_connection(self, connection: ServerConnection) -> None:
        handshake, kind = self._front.of(connection)
        wire = WebSocketConnection(connection)
        try:
            adapter = kind.make(handshake)
        except Refused as error:
            logger.warning(
                "a stream of kind %s was refused: %s",
                kind.name,
                log_text(error.reason, MOST_SENTENCE_CHARS),
            )
            await wire.close(1008)
            return
        transport = "wss" if handshake.secure else "ws"
        program = handshake.headers.get("user-agent", "")[:MAX_AGENT_CHARS]
        await self._serve(wire, adapter, kind, transport, handshake.peer, program)

    async def _tcp_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        wire = TcpConnection(reader, writer)
        host = wire.peer.rpartition(":")[0].strip("[]")
        try:
            self._admission.check(Handshake(peer=host), token=False)
        except Refused as error:
            logger.warning(
                "a stream of kind audiosocket was refused: %s",
                log_text(error.reason, MOST_SENTENCE_CHARS),
            )
            await wire.close()
            return
        adapter = AudioSocketAdapter(self.settings.audiosocket_hz)
        await self._serve(wire, adapter, AUDIOSOCKET, "tcp", host)

    async def _serve(
        self,
        wire: StreamConnection,
        adapter: StreamAdapter,
        kind: StreamKind,
        transport: str,
        host: str,
        program: str = "",
    ) -> None:
        call = self._new_call(wire, adapter, kind, transport)
        call.facts.user_agent = program
        call.on_unbegun = partial(self._note_unbegun, call.facts)
        handing = self._start(self._offer(call, host, wire.address), "new stream")
        running = self._start(self._run(call), "stream")
        await asyncio.wait([handing, running])

    def _note_unbegun(self, facts: CallFacts) -> None:
        facts.logged = self._unbegun.take(self.clock.now())
        if facts.logged and self._unlogged:
            logger.warning(
                "%d streams that never started have no record: too many came", self._unlogged
            )
            self._unlogged = 0
        self._unlogged += not facts.logged

    def _enter(self, call: StreamCall, host: str) -> None:
        self._admission.enter(host)
        self._begun[call] = host

    async def _offer(self, call: StreamCall, host: str, address: object) -> None:
        await call.started.wait()
        if call.sink is None or call.over:
            return
        self._door.begun(address)
        try:
            self._admission.check_room(host)
        except Refused as error:
            logger.warning(
                "a stream of kind %s was refused: %s",
                call.line,
                log_text(error.reason, MOST_SENTENCE_CHARS),
            )
            await call.reject(error.status)
            return
        self._enter(call, host)
        if (outage := await self._outages.now()) is not None:
            self._outages.turned_away(outage)
            await call.turn_away(outage, self._outages.announcement)
            return
        for _ in range(self._incoming.qsize()):  # drop waiting calls that are over
            waiting = self._incoming.get_nowait()
            if waiting is None or not waiting.over:
                self._incoming.put_nowait(waiting)
        self._incoming.put_nowait(call)

    async def _run(self, call: StreamCall) -> None:
        self.calls.add(call)
        self._idle.clear()
        try:
            await call.run()
        finally:
            self.calls.discard(call)
            if (host := self._begun.pop(call, None)) is not None:
                self._admission.leave(host)
            self._learnt = call.learnt() or self._learnt
            if not self.calls:
                self._idle.set()
                heap.sweep_if_idle()

    def _new_call(
        self, wire: StreamConnection, adapter: StreamAdapter, kind: StreamKind, transport: str
    ) -> StreamCall:
        settings = self.settings
        facts = CallFacts(
            call_id=f"{adapter.line}-{uuid.uuid4()}",
            line=adapter.line,
            direction="in",
            transport=transport,
            keep_transcript=self._files.settings.transcript,
            started_wall=time.time(),
            started_at=self.clock.now(),
            media=MediaFacts(peer_host=wire.peer.rpartition(":")[0].strip("[]")),
        )
        voice = CallVoice(self.link, settings.speech, self._records)
        body = CallCore(facts, self.clock, voice, self._files, self.recognisers)
        call = StreamCall(body, wire, adapter, settings, kind)
        if adapter.owns_clock:
            call.set_policy(FillingPolicy(ptime_s=adapter.ptime_ms / 1000, learnt=self._learnt))
        return call

    def _start(self, work: Any, name: str) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _close(self) -> None:
        self._admission.draining = True
        self._incoming.put_nowait(None)
        calls = list(self.calls)
        await asyncio.gather(*(call.hangup() for call in calls), return_exceptions=True)
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        servers: list[Server | asyncio.Server] = [*self._web, *self._tcp]
        for server in servers:  # after the calls are hung up
            server.close()
            await server.wait_closed()
        for watching in self._watching:
            watching.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
