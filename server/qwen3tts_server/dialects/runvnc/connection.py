"""Route and connection of the runvnc protocol, at every path left over."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from fastapi import FastAPI, WebSocket

from qwen3tts_engine.base import LoadedVoice
from qwen3tts_engine.wrapped import cloning
from qwen3tts_server.connection import Connection, speech_error
from qwen3tts_server.dialects.http_errors import error_response
from qwen3tts_server.dialects.runvnc.messages import Init, error_message
from qwen3tts_server.dialects.runvnc.session import (
    Append,
    Command,
    End,
    Load,
    RunvncSession,
    Start,
    Stop,
)
from qwen3tts_server.keys import WEBSOCKET, Role
from qwen3tts_server.service import Service
from qwen3tts_server.speech_stream import SpeechStream
from qwen3tts_server.utterance import AudioPiece
from qwen3tts_wire.errors import BadRequest, SpeechError, UnknownVoice
from qwen3tts_wire.messages import ContextOpen

NAME = "runvnc"
"""In metrics and logs."""


class PendingSpeech:
    """Utterance whose text may come before its begin."""

    def __init__(self, order: ContextOpen) -> None:
        self.order = order
        self._speaking: SpeechStream | None = None
        self._early = ""
        self._ended = False
        self.stopped = False

    def begin(self, speaking: SpeechStream) -> None:
        self._speaking = speaking
        if self._early:
            speaking.append(self._early)
        if self._ended:
            speaking.end()
        if self.stopped:
            speaking.cancel()

    def append(self, text: str) -> None:
        if self._speaking is None:
            self._early += text
        else:
            self._speaking.append(text)

    def end(self) -> None:
        self._ended = True
        if self._speaking is not None:
            self._speaking.end()

    def stop(self) -> None:
        self.stopped = True
        if self._speaking is not None:
            self._speaking.cancel()


class RunvncConnection(Connection[Command]):
    """One client, one utterance at a time."""

    def __init__(
        self,
        socket: WebSocket,
        service: Service,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = RunvncSession(
            service.settings,
            service.voices.check,
            service.engine.model,
            clock(),
            service.meter.dialect(NAME).errored,
        )
        super().__init__(socket, self._session, NAME, clock)
        self._service = service
        self._speech: PendingSpeech | None = None

    def perform(self, command: Command) -> None:
        match command:
            case Load(init):
                self.start(self._load(init), "runvnc voice")
            case Start(order):
                self._speech = PendingSpeech(order)
                self.start(self._speak(self._speech), "runvnc speech")
            case Append(text):
                if self._speech is not None:
                    self._speech.append(text)
            case End():
                if self._speech is not None:
                    self._speech.end()
            case Stop():
                speech, self._speech = self._speech, None
                if speech is not None:
                    speech.stop()

    # --- speech ---

    async def _speak(self, speech: PendingSpeech) -> None:
        session, no = self._session, speech.order.context_no
        try:
            async with self._service.speaking(speech.order, NAME) as speaking:
                speech.begin(speaking)
                async for item in speaking:
                    if isinstance(item, AudioPiece):
                        self.act(session.sound(no, item.data))
                        await self.sound_taken()
            commands = session.ended(no)
        except SpeechError as error:
            commands = session.failed(no, error)
        self.act(commands)

    # --- voices ---

    async def _load(self, init: Init) -> None:
        session = self._session
        try:
            voice, only_x = await self._bind(init)
        except Exception as error:
            failure = speech_error(error, "loading a voice")
            commands = session.refused(failure, self._clock())
        else:
            commands = session.loaded(voice, x_vector_only=only_x, now=self._clock())
        self.act(commands)

    async def _bind(self, init: Init) -> tuple[LoadedVoice, bool]:
        if not init.ref_audio_base64:
            return await self._known(init.voice_id or ""), False
        text = (init.ref_text or "").strip() or None
        try:
            return await self._brought(init.ref_audio_base64, text, init.x_vector_only), False
        except BadRequest:
            fallback = self._service.settings.runvnc.xvector_fallback
            if init.x_vector_only or text or not fallback:
                raise
            # There may be no recogniser here; the speaker embedding (x-vector) needs no
            # transcript. If the recording itself is at fault, this fails again.
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


ROUTES = {(WEBSOCKET, "/{path:path}"): Role.SPEAK}


def add_routes(app: FastAPI, service: Service) -> None:
    @app.websocket("/{path:path}")
    async def runvnc(socket: WebSocket, path: str) -> None:
        # Its clients ask for no subprotocol, and their servers have no versioned paths; a client
        # that does meant another protocol, and gets what an unknown path gets: HTTP 403.
        if socket.scope.get("subprotocols") or path.startswith("v1/"):
            await _refuse(socket)
            return
        await socket.accept()
        connection = RunvncConnection(socket, service)
        await connection.serve(service, lambda error: error_message(error, "connection"))
