"""WebSocket connections of all dialects: a shell for the socket, a base for the session.

The shell does the I/O; the pure session decides. A dialect derives both.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from starlette.websockets import WebSocket, WebSocketDisconnect

from qwen3tts_server.service import Service
from qwen3tts_wire.endpoint import Data
from qwen3tts_wire.errors import EngineFailed, ServerBusy, SpeechError

log = logging.getLogger(__name__)

GONE = (WebSocketDisconnect, RuntimeError)
"""Errors of a write to a client that has left."""
MESSAGE_CHARS = 64
"""Least cost of a message."""
IDLE, TOO_BIG, RESTART, TRY_AGAIN = 4408, 1009, 1012, 1013
"""Close codes: ours for idle, and RFC 6455 section 7.4.1."""
STOPPING = "the server is stopping; connect again"


@dataclass(frozen=True)
class Close:
    code: int
    reason: str


@dataclass(frozen=True)
class ConnectionBounds:
    """Bounds of a connection in any dialect; 0 s: none."""

    message: int
    """Message size, bytes where ``in_bytes``, else characters."""
    backlog: int
    """Bytes of unwritten answers that stop reading (backpressure)."""
    first_message_s: float
    idle_s: float
    in_bytes: bool = False
    turn_chars: int = 4096
    """Characters read in a turn: 10 ms of cutting into clauses."""
    turn_writes: int = 4
    """Writes in a turn: a write does not wait while the socket buffer has room, and a client that
    left is noticed only between turns."""

    def exceeded_by(self, data: Data) -> bool:
        if self.in_bytes and isinstance(data, str) and len(data) <= self.message < 4 * len(data):
            return len(data.encode()) > self.message
        return len(data) > self.message


C = TypeVar("C")


class ConnectionSession(ABC, Generic[C]):
    """Decisions of one connection. Pure.

    The connection calls a method an event, performs the returned commands, writes
    ``data_to_send`` (again at ``next_write``), calls ``tick`` at ``next_deadline``. Times:
    seconds of the server's monotonic clock.
    """

    def __init__(self, bounds: ConnectionBounds, now: float | None) -> None:
        """``now`` None: no idle timeout."""
        self.bounds = bounds
        self._last_activity = now
        self._heard = False
        """True once a message came."""
        self._draining_until: float | None = None
        self._closed = False
        self._commands: list[C] = []

    # --- what a dialect defines ---

    @abstractmethod
    def _handle(self, data: Data, now: float) -> None: ...

    @abstractmethod
    def data_to_send(self, now: float) -> list[Data]: ...

    @abstractmethod
    def _close(self, code: int, reason: str) -> None: ...

    @property
    @abstractmethod
    def busy(self) -> bool:
        """True while the engine works for the client."""

    @abstractmethod
    def _drain_expired(self, now: float) -> None: ...

    def _too_large(self) -> None:
        unit = "bytes" if self.bounds.in_bytes else "characters"
        self._close(TOO_BIG, f"a message had more than {self.bounds.message} {unit}")

    def _idle_expired(self) -> None:
        silence = "no message came" if self._heard else "nothing was said"
        self._close(IDLE, f"{silence} for too long; connect again")

    def _drain_announced(self, within_s: float) -> None: ...

    def _deadlines(self, now: float) -> Iterable[float | None]:
        return [self._draining_until]

    @property
    def backlog(self) -> int:
        return 0

    @property
    def full(self) -> bool:
        """True while the engine must wait (backpressure)."""
        return False

    def next_write(self, now: float) -> float | None:
        """Time of more ``data_to_send`` without an event."""
        return None

    def gone(self, now: float) -> None: ...

    # --- events ---

    def receive(self, data: Data, now: float) -> list[C]:
        if self._closed:
            return []
        self._heard = True
        self._note_activity(now)
        if self.bounds.exceeded_by(data):
            self._too_large()
        else:
            self._handle(data, now)
        return self._take_commands()

    def sent(self, now: float) -> list[C]:
        return self._take_commands()

    def next_deadline(self, now: float) -> float | None:
        """Time of ``tick``; None: after the next event."""
        if self._closed:
            return None
        deadlines = [self._idle_until(), *self._deadlines(now)]
        return min((each for each in deadlines if each is not None), default=None)

    def tick(self, now: float) -> list[C]:
        drained = self._draining_until
        if not self._closed and drained is not None and now >= drained:
            self._drain_expired(now)
        idle = self._idle_until()
        if idle is not None and now >= idle:
            self._idle_expired()
        return self._take_commands()

    def drain(self, within_s: float, now: float) -> list[C]:
        until = now + within_s
        if self._draining_until is None or until < self._draining_until:
            self._draining_until = until
            self._drain_announced(within_s)
        return self._take_commands()

    # --- within ---

    def _note_activity(self, now: float) -> None:
        if self._last_activity is not None:
            self._last_activity = now

    def _idle_until(self) -> float | None:
        if self._closed or self._last_activity is None or self.busy:
            return None
        bound = self.bounds.idle_s if self._heard else self.bounds.first_message_s
        return self._last_activity + bound if bound else None

    def _refuse_when_draining(self) -> None:
        if self._draining_until is not None:
            raise ServerBusy("The server is about to stop.", remedy="Use another connection.")

    def _take_commands(self) -> list[C]:
        commands, self._commands = self._commands, []
        return commands


class Connection(ABC, Generic[C]):
    """One client's WebSocket; only ``_write`` writes to it."""

    def __init__(
        self,
        socket: WebSocket,
        session: ConnectionSession[C],
        dialect: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.dialect = dialect
        self._socket = socket
        self.session = session
        self._clock = clock
        self._wake = asyncio.Event()
        self._readable = asyncio.Event()
        self._readable.set()
        self._taken = asyncio.Event()
        self._close: Close | None = None
        self._gone = False
        """Set when writing is impossible; input is then ignored."""
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._under_way: set[asyncio.Task[None]] = set()

    @abstractmethod
    def perform(self, command: C) -> None:
        """Perform a session command, except ``Close``."""

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                writer = tasks.create_task(self._write(), name=f"{self.dialect} writer")
                self.act(())
                await self._read()
                self._tasks = None
                for task in (writer, *self._under_way):
                    task.cancel()
        except* Exception:
            log.exception("a %s connection broke", self.dialect)
            await close(self._socket, 1011, "the server broke")
        finally:
            self._tasks = None
            self.session.gone(self._clock())
            if self._timer is not None:
                self._timer.cancel()

    async def serve(self, service: Service, refusal: Callable[[ServerBusy], str] | None) -> None:
        """Run as one of the server's connections.

        Args:
            service: counts and drains the connection.
            refusal: makes the message before close code 1013, if any.
        """
        try:
            with service.serving(self.dialect, self.drain):
                await self.run()
        except ServerBusy as error:
            if refusal is None or await put(self._socket, [refusal(error)]):
                await close(self._socket, TRY_AGAIN, f"{error}"[:120])

    def drain(self, within_s: float) -> None:
        self.act(self.session.drain(within_s, self._clock()))

    # --- for the dialect ---

    def act(self, commands: Sequence[C]) -> None:
        for command in commands:
            if isinstance(command, Close):
                self._close = command
            else:
                self.perform(command)
        if not self.session.full:
            self._taken.set()
        self._wake.set()
        self._schedule()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None] | None:
        """Run a task of the connection; None: it is over."""
        if self._tasks is None:
            work.close()
            return None
        task = self._tasks.create_task(work, name=name)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def sound_taken(self) -> None:
        while self.session.full:
            self._taken.clear()
            await self._taken.wait()

    # --- the socket ---

    async def _read(self) -> None:
        session, read = self.session, 0
        while True:
            await self._readable.wait()
            data = data_of(await self._socket.receive())
            if data is None:
                return
            if self._gone:
                continue
            self.act(session.receive(data, self._clock()))
            if session.backlog > session.bounds.backlog:
                self._readable.clear()
            read += max(len(data), MESSAGE_CHARS)
            if read >= session.bounds.turn_chars:
                # ``receive`` does not wait while messages lie there.
                read = 0
                await asyncio.sleep(0)

    async def _write(self) -> None:
        session = self.session
        while True:
            await self._wait_for_data()
            writes = 0
            while data := session.data_to_send(self._clock()):
                if not await put(self._socket, data):
                    self._gone = True
                    self._readable.set()
                    return
                self._readable.set()
                self.act(session.sent(self._clock()))
                writes += 1
                if writes % session.bounds.turn_writes == 0:
                    await asyncio.sleep(0)
            if self._close is not None:
                await close(self._socket, self._close.code, self._close.reason)
                return

    async def _wait_for_data(self) -> None:
        timer = None
        due = self.session.next_write(now := self._clock())
        if due is not None:
            timer = asyncio.get_running_loop().call_later(max(0.0, due - now), self._wake.set)
        try:
            await self._wake.wait()
            self._wake.clear()
        finally:
            if timer is not None:
                timer.cancel()

    # --- time ---

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._tasks is None:
            return
        now = self._clock()
        due = self.session.next_deadline(now)
        if due is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, due - now), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.act(self.session.tick(self._clock()))


def speech_error(error: Exception, doing: str) -> SpeechError:
    """Return an error for the client; other than SpeechErrors are logged."""
    if isinstance(error, SpeechError):
        return error
    log.error("the engine broke: %s", doing, exc_info=error)
    return EngineFailed("The engine broke.", remedy="The server's log has the reason.")


def data_of(event: MutableMapping[str, Any]) -> Data | None:
    """Return an event's data; None at the end."""
    if event["type"] != "websocket.receive":
        return None
    text: str | None = event.get("text")
    if text is not None:
        return text
    data: bytes | None = event.get("bytes")
    return data or b""


async def put(socket: WebSocket, messages: Sequence[Data]) -> bool:
    """Write; False when the client is gone."""
    try:
        for each in messages:
            if isinstance(each, bytes):
                await socket.send_bytes(each)
            else:
                await socket.send_text(each)
    except GONE:
        return False
    return True


async def close(socket: WebSocket, code: int, reason: str) -> None:
    with contextlib.suppress(*GONE):
        await socket.close(code, reason)
