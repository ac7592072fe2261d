"""The runvnc protocol, at every path without another route."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Sequence

from fastapi import FastAPI, WebSocket
from starlette.websockets import WebSocketDisconnect

from qwen3tts_engine.base import LoadedVoice
from qwen3tts_engine.wrapped import cloning
from qwen3tts_server.connection import close, data_of, put
from qwen3tts_server.dialects.http_errors import error_response
from qwen3tts_server.dialects.runvnc.messages import Init, complaint
from qwen3tts_server.dialects.runvnc.session import (
    Append,
    Close,
    Command,
    End,
    Load,
    RunvncSession,
    Start,
    Stop,
)
from qwen3tts_server.service import Service
from qwen3tts_server.speaking import Speaking
from qwen3tts_server.utterance import Sound
from qwen3tts_wire.errors import BadRequest, EngineFailed, ServerBusy, SpeechError, UnknownVoice
from qwen3tts_wire.messages import ContextOpen


class GrowingSpeech:
    """One utterance, whose text may come before it has begun."""

    def __init__(self, order: ContextOpen) -> None:
        self.order = order
        self._speaking: Speaking | None = None
        self._early = ""
        self._ended = False
        self.stopped = False

    def begin(self, speaking: Speaking) -> None:
        """Its task runs now."""
        self._speaking = speaking
        if self._early:
            speaking.append(self._early)
        if self._ended:
            speaking.end()
        if self.stopped:
            speaking.cancel()

    def append(self, text: str) -> None:
        """More text."""
        if self._speaking is None:
            self._early += text
        else:
            self._speaking.append(text)

    def end(self) -> None:
        """No more text."""
        self._ended = True
        if self._speaking is not None:
            self._speaking.end()

    def stop(self) -> None:
        """The client wants no more of it; the engine stops at once."""
        self.stopped = True
        if self._speaking is not None:
            self._speaking.cancel()

    def flush_deadline(self, now: float) -> float | None:
        """When a pause in its text will have to be a flush."""
        if self._speaking is None or self.stopped:
            return None
        return self._speaking.utterance.flush_deadline(now)

    def flush_if_due(self, now: float) -> None:
        """Speak what is there, if the pause in its text is long enough."""
        due = self.flush_deadline(now)
        if self._speaking is not None and due is not None and due <= now:
            self._speaking.flush()


log = logging.getLogger(__name__)

NAME = "runvnc"
"""The protocol among the dialects, in metrics and logs."""


class RunvncConnection:
    """Carries out one session. ``_write`` is the socket's only writer."""

    def __init__(
        self,
        socket: WebSocket,
        service: Service,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._socket = socket
        self._service = service
        self._clock = clock
        self._session = RunvncSession(
            service.settings,
            service.voices.check,
            service.engine.model,
            clock(),
            service.meter.dialect(NAME).errored,
        )
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        """Set while answers may pile up no further: the client's messages are read."""
        self._room.set()
        self._sound_room = asyncio.Event()
        self._sound_room.set()
        self._speech: GrowingSpeech | None = None
        self._close: Close | None = None
        self._gone = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._under_way: set[asyncio.Task[None]] = set()
        """What speaks and what loads voices."""

    async def run(self) -> None:
        """Serve until the client leaves or the session closes."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                self._act(())
                others = [tasks.create_task(self._write(), name="runvnc writer")]
                await self._read()
                self._tasks = None
                others += self._under_way
                for task in others:
                    task.cancel()
        except* Exception:
            log.exception("a runvnc connection broke")
            await close(self._socket, 1011, "the server broke")
        finally:
            self._tasks = None
            if self._timer is not None:
                self._timer.cancel()

    def drain(self, within_s: float) -> None:
        """The server is to stop."""
        self._act(self._session.drain(within_s, self._clock()))

    # --- the socket ---

    async def _read(self) -> None:
        while True:
            await self._room.wait()
            data = data_of(await self._socket.receive())
            if data is None:
                return
            if self._gone:
                continue
            self._act(self._session.receive(data, self._clock()))
            if self._session.backlog > self._service.settings.backlog_bytes:
                self._room.clear()
            # ``receive`` does not wait while messages lie there; the others have their turn.
            await asyncio.sleep(0)

    async def _write(self) -> None:
        while True:
            await self._wait_for_work()
            while data := self._session.data_to_send(self._clock()):
                if not await put(self._socket, data):
                    self._gone = True
                    self._room.set()
                    return
                self._room.set()
                if not self._session.full:
                    self._sound_room.set()
                self._act(self._session.sent())
                # A write does not wait while the socket takes it; the others have their turn.
                await asyncio.sleep(0)
            if self._close is not None:
                await close(self._socket, self._close.code, self._close.reason)
                return

    async def _wait_for_work(self) -> None:
        """Until something was said, or the next frame is due."""
        timer = None
        due = self._session.next_frame(now := self._clock())
        if due is not None:
            timer = asyncio.get_running_loop().call_later(max(0.0, due - now), self._wake.set)
        try:
            await self._wake.wait()
            self._wake.clear()
        finally:
            if timer is not None:
                timer.cancel()

    # --- the session's commands ---

    def _act(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case Load(init):
                    self._task(self._load(init), "runvnc voice")
                case Start(order):
                    self._speech = GrowingSpeech(order)
                    self._task(self._speak(self._speech), "runvnc speech")
                case Append(text):
                    if self._speech is not None:
                        self._speech.append(text)
                case End():
                    if self._speech is not None:
                        self._speech.end()
                case Stop():
                    self._stop()
                case Close():
                    self._close = command
        self._wake.set()
        self._schedule()

    def _task(self, work: Coroutine[None, None, None], name: str) -> None:
        if self._tasks is None:
            work.close()
            return
        task = self._tasks.create_task(work, name=name)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def _stop(self) -> None:
        speech, self._speech = self._speech, None
        if speech is not None:
            speech.stop()
        self._sound_room.set()

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._tasks is None:
            return
        now = self._clock()
        times = [self._session.next_deadline()]
        if self._speech is not None:
            times.append(self._speech.flush_deadline(now))
        due = min((each for each in times if each is not None), default=None)
        if due is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, due - now), self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._clock()
        if self._speech is not None:
            self._speech.flush_if_due(now)
        self._act(self._session.tick(now))

    # --- speech ---

    async def _speak(self, speech: GrowingSpeech) -> None:
        session, no = self._session, speech.order.context_no
        try:
            async with self._service.speaking(speech.order, NAME) as speaking:
                speech.begin(speaking)
                async for item in speaking:
                    if isinstance(item, Sound):
                        session.sound(no, item.data)
                        self._wake.set()
                        if session.full:
                            self._sound_room.clear()
                            await self._sound_room.wait()
            commands = session.ended(no)
        except SpeechError as error:
            commands = session.failed(no, error)
        self._act(commands)

    # --- voices ---

    async def _load(self, init: Init) -> None:
        session = self._session
        try:
            voice, only_x = await self._bind(init)
        except SpeechError as error:
            commands = session.refused(error, self._clock())
        except Exception:
            log.exception("the engine broke while it loaded a voice")
            broken = EngineFailed("The engine broke.", remedy="The server's log has the reason.")
            commands = session.refused(broken, self._clock())
        else:
            commands = session.loaded(voice, x_vector_only=only_x, now=self._clock())
        self._act(commands)

    async def _bind(self, init: Init) -> tuple[LoadedVoice, bool]:
        """The voice, and whether its text was to be found out and could not be."""
        if not init.ref_audio_base64:
            return await self._known(init.voice_id or ""), False
        text = (init.ref_text or "").strip() or None
        try:
            return await self._brought(init.ref_audio_base64, text, init.x_vector_only), False
        except BadRequest:
            fallback = self._service.settings.runvnc.xvector_fallback
            if init.x_vector_only or text or not fallback:
                raise
            # It may be that nothing here writes down what is said; the colour of the voice
            # needs no text. If the recording itself is at fault, that is said once more.
            return await self._brought(init.ref_audio_base64, None, True), True

    async def _known(self, voice_id: str) -> LoadedVoice:
        voices = self._service.voices
        meant: str | None = voice_id
        # An engine may know ids that it does not list: what is not known here, it is asked for.
        with contextlib.suppress(UnknownVoice):
            meant = await voices.find(voice_id)
        own = [each.id for each in voices.inner.voices()]
        if cloning(voices) is None or meant in own or (own and meant is None):
            voices.check(voice_id, None)
            return LoadedVoice(voice_id, cached=True)
        return await voices.load_voice(voice_id=voice_id)

    async def _brought(self, ref: str, text: str | None, only_x: bool) -> LoadedVoice:
        return await self._service.voices.bring(ref, ref_text=text, x_vector_only=only_x)


UNKNOWN_PATH = "No WebSocket is served at this path, or not with this subprotocol."
REMEDY = (
    "/v1/speech takes the subprotocol qwen3tts.speech.v1, /v1/audio/speech/stream vLLM-Omni's"
    " messages; runvnc's clients ask for no subprotocol and for no path below /v1/."
)


async def _refuse(socket: WebSocket) -> None:
    if "websocket.http.response" in (socket.scope.get("extensions") or {}):
        refusal = error_response(403, "not_found", UNKNOWN_PATH, remedy=REMEDY)
        await socket.send_denial_response(refusal)
    else:
        await socket.close()


def add_routes(app: FastAPI, service: Service) -> None:
    """Put the route into ``app``; it is to be the last of its WebSockets."""

    @app.websocket("/{path:path}")
    async def runvnc(socket: WebSocket, path: str) -> None:
        # Its clients ask for no subprotocol, and their servers have no versioned paths: whoever
        # does meant another protocol, and gets what an unknown path gets: HTTP 403.
        if socket.scope.get("subprotocols") or path.startswith("v1/"):
            await _refuse(socket)
            return
        await socket.accept()
        connection = RunvncConnection(socket, service)
        try:
            with service.serving(NAME, connection.drain):
                await connection.run()
        except ServerBusy as error:
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):
                await socket.send_text(complaint(error, "connection"))
                await socket.close(1013, f"{error}"[:120])
