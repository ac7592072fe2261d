"""What every WebSocket connection does with its socket."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import logging
import time
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from qwen3tts_engine.base import Engine, LoadedVoice, SynthesisRequest
from qwen3tts_engine.wrapped import cloning
from qwen3tts_server.dialects.native.greeting import Greeting
from qwen3tts_server.dialects.native.session import (
    Close,
    Command,
    LoadVoice,
    PauseSynthesis,
    ResumeSynthesis,
    Session,
    StartSynthesis,
    StopSynthesis,
)
from qwen3tts_server.settings import ServerSettings
from qwen3tts_server.speaking import Observer
from qwen3tts_wire.endpoint import Data
from qwen3tts_wire.errors import BadRequest, EngineFailed, SpeechError
from qwen3tts_wire.messages import VoiceLoad

GONE = (WebSocketDisconnect, RuntimeError)
"""What a socket raises to whom writes to a client that has left."""


def data_of(event: MutableMapping[str, Any]) -> str | bytes | None:
    """What a received event carries; None when it is the end of the connection."""
    if event["type"] != "websocket.receive":
        return None
    text: str | None = event.get("text")
    if text is not None:
        return text
    data: bytes | None = event.get("bytes")
    return data or b""


async def put(socket: WebSocket, messages: Sequence[str | bytes]) -> bool:
    """Write; False when the client is gone, which the reader learns as well."""
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
    """Close with a frame, if somebody is still there to read it."""
    with contextlib.suppress(*GONE):
        await socket.close(code, reason)


log = logging.getLogger(__name__)

TURN_WRITES = 4
"""After so many writes in a row the others have their turn: a write does not wait while the socket
takes it, and whether the client is gone is learnt only between turns."""
TURN_CHARS = 4096
"""With so much read from one client the others have their turn; to cut it into clauses takes some
10 ms."""
MESSAGE_CHARS = 64
"""What a message counts for at least: an empty one is answered too."""


@dataclass
class _Clause:
    """A clause that the engine is speaking."""

    task: asyncio.Task[None] | None = None
    go: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared while the engine is to wait."""


class Connection:
    """Carries out one session. ``_write`` is the socket's only writer."""

    def __init__(
        self,
        socket: WebSocket,
        engine: Engine,
        settings: ServerSettings,
        *,
        observer: Observer | None = None,
        greeting: Greeting | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._socket = socket
        self._engine = engine
        self._settings = settings
        self._clock = clock
        self._session = Session(engine, settings, observer=observer, now=clock(), greeting=greeting)
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._clauses: dict[int, _Clause] = {}
        self._loads: set[asyncio.Task[None]] = set()
        self._close: Close | None = None
        self._gone = False
        """Nothing can be written any more; what still comes in is not looked at."""
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Serve until the client leaves or the session closes."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                writer = tasks.create_task(self._write(), name="speech writer")
                self._wake.set()
                await self._read()
                self._tasks = None
                writer.cancel()
                for load in self._loads:
                    load.cancel()
                for clause in self._clauses.values():
                    if clause.task is not None:
                        clause.task.cancel()
        except* Exception:
            log.exception("a speech connection broke")
            await close(self._socket, 1011, "the server broke")
        finally:
            self._tasks = None
            self._session.gone(self._clock())
            if self._timer is not None:
                self._timer.cancel()

    def drain(self, within_s: float) -> None:
        """The server is to stop."""
        self._act(self._session.drain(within_s, self._clock()))

    # --- the socket ---

    async def _read(self) -> None:
        read = 0
        while True:
            await self._room.wait()
            data = data_of(await self._socket.receive())
            if data is None:
                return
            if self._gone:
                continue
            if _is_larger(data, most := self._settings.limits.max_message_bytes):
                # RFC 6455 section 7.4.1: 1009 is for a message too big to process.
                self._act([Close(1009, f"a message had more than {most} bytes")])
                self._gone = True
                continue
            self._act(self._session.receive(data, self._clock()))
            if self._session.backlog > self._settings.backlog_bytes:
                # Until the client has taken its answers, nothing more is read from it.
                self._room.clear()
            read += max(len(data), MESSAGE_CHARS)
            if read >= TURN_CHARS:
                # ``receive`` does not wait while messages lie there.
                read = 0
                await asyncio.sleep(0)

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            writes = 0
            while data := self._session.data_to_send(self._clock()):
                if not await put(self._socket, data):
                    self._gone = True
                    self._room.set()
                    return
                self._room.set()
                self._act(self._session.sent(self._clock()))
                writes += 1
                if writes % TURN_WRITES == 0:
                    await asyncio.sleep(0)
            if self._close is not None:
                await close(self._socket, self._close.code, self._close.reason)
                return

    # --- the session's commands ---

    def _act(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case StartSynthesis(number, request):
                    self._start(number, request)
                case StopSynthesis(number):
                    clause = self._clauses.pop(number, None)
                    if clause is not None and clause.task is not None:
                        clause.task.cancel()
                case PauseSynthesis(number):
                    if number in self._clauses:
                        self._clauses[number].go.clear()
                case ResumeSynthesis(number):
                    if number in self._clauses:
                        self._clauses[number].go.set()
                case LoadVoice(message):
                    self._load(message)
                case Close():
                    self._close = command
        self._wake.set()
        self._schedule()

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._tasks is None:
            return
        now = self._clock()
        deadline = self._session.next_deadline(now)
        if deadline is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, deadline - now), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._act(self._session.tick(self._clock()))

    # --- the engine ---

    def _start(self, number: int, request: SynthesisRequest) -> None:
        if self._tasks is None:
            return
        clause = self._clauses[number] = _Clause()
        clause.go.set()
        clause.task = self._tasks.create_task(
            self._speak(number, request, clause), name=f"speak context {number}"
        )

    async def _speak(self, number: int, request: SynthesisRequest, clause: _Clause) -> None:
        session = self._session
        try:
            session.began(number, self._clock())
            async with contextlib.aclosing(self._engine.synthesize(request)) as chunks:
                async for chunk in chunks:
                    self._act(session.produced(number, chunk, self._clock()))
                    await clause.go.wait()
            commands = session.generated(number, self._clock())
        except SpeechError as error:
            commands = session.failed(number, error, self._clock())
        except Exception:
            log.exception("the engine broke in context %d", number)
            broken = EngineFailed("The engine broke.", remedy="The server's log has the reason.")
            commands = session.failed(number, broken, self._clock())
        finally:
            if self._clauses.get(number) is clause:
                del self._clauses[number]
        self._act(commands)

    def _load(self, message: VoiceLoad) -> None:
        if self._tasks is None:
            return
        task = self._tasks.create_task(self._loading(message), name="load a voice")
        self._loads.add(task)
        task.add_done_callback(self._loads.discard)

    async def _loading(self, message: VoiceLoad) -> None:
        session, request_id = self._session, message.request_id
        try:
            loaded = await _load_voice(self._engine, message)
        except SpeechError as error:
            commands = session.voice_failed(request_id, error, self._clock())
        except Exception:
            log.exception("the engine broke while it loaded a voice")
            broken = EngineFailed("The engine broke.", remedy="The server's log has the reason.")
            commands = session.voice_failed(request_id, broken, self._clock())
        else:
            commands = session.voice_loaded(request_id, loaded, self._clock())
        self._act(commands)


async def _load_voice(engine: Engine, message: VoiceLoad) -> LoadedVoice:
    cloner = cloning(engine)
    assert cloner is not None
    audio = None
    if message.ref_audio is not None:
        audio = await asyncio.to_thread(_from_base64, message.ref_audio)
    return await cloner.load_voice(
        voice_id=message.voice_id,
        ref_audio=audio,
        ref_text=message.ref_text or None,
        x_vector_only=message.x_vector_only,
    )


def _is_larger(data: Data, bytes_: int) -> bool:
    """Than so many bytes on the wire, where a character has up to 4."""
    if isinstance(data, str) and len(data) <= bytes_ < 4 * len(data):
        return len(data.encode()) > bytes_
    return len(data) > bytes_


def _from_base64(text: str) -> bytes:
    """What the base64 stands for, by itself or in a ``data:`` address, as other protocols have."""
    head, comma, body = text.partition(",")
    if comma and head[:5].lower() == "data:" and head[-7:].lower() == ";base64":
        text = body
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequest(
            "voice.load.ref_audio is not base64.",
            remedy="Send a sound file's bytes as base64 without line breaks (RFC 4648 section 4).",
        ) from error
