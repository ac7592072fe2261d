"""Route and connection of ``qwen3tts.speech.v1``."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from fastapi import FastAPI
from starlette.websockets import WebSocket

from qwen3tts_engine.base import Engine, LoadedVoice, SynthesisRequest
from qwen3tts_engine.wrapped import cloning
from qwen3tts_server.connection import Connection, speech_error
from qwen3tts_server.dialects.native.commands import (
    Command,
    LoadVoice,
    PauseSynthesis,
    ResumeSynthesis,
    StartSynthesis,
    StopSynthesis,
)
from qwen3tts_server.dialects.native.greeting import Greeting, Greetings
from qwen3tts_server.dialects.native.session import NativeSession
from qwen3tts_server.keys import EVERYTHING, WEBSOCKET, Role, grant_of
from qwen3tts_server.service import Service
from qwen3tts_server.settings import ServerSettings
from qwen3tts_server.speech_stream import UtteranceObserver
from qwen3tts_wire.errors import BadRequest
from qwen3tts_wire.messages import PROTOCOL, VoiceLoad

NAME = "speech.v1"
"""In metrics and logs."""
SPEECH_PATH = "/v1/speech"
ROUTES = {(WEBSOCKET, SPEECH_PATH): Role.SPEAK}


def add_routes(app: FastAPI, service: Service) -> None:
    greetings = Greetings(service.voices, service.settings.limits)

    @app.websocket(SPEECH_PATH)
    async def speech(socket: WebSocket) -> None:
        await serve_speech(socket, service, greetings)


async def serve_speech(socket: WebSocket, service: Service, greetings: Greetings) -> None:
    if PROTOCOL not in socket.scope.get("subprotocols", ()):
        await socket.accept()
        await socket.close(1002, f"the subprotocol {PROTOCOL} is required")
        return
    # A server without keys may be embedded without the gate.
    grant = grant_of(socket.scope) if service.settings.access.has_keys else EVERYTHING
    await socket.accept(subprotocol=PROTOCOL)
    connection = NativeConnection(
        socket,
        service.engine,
        service.settings,
        observer=service.observer(NAME),
        greeting=greetings.of(grant),
    )
    await connection.serve(service, None)


@dataclass
class _Clause:
    task: asyncio.Task[None] | None = None
    go: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared while the engine waits."""


class NativeConnection(Connection[Command]):
    """One client; many contexts share the engine."""

    def __init__(
        self,
        socket: WebSocket,
        engine: Engine,
        settings: ServerSettings,
        *,
        observer: UtteranceObserver | None = None,
        greeting: Greeting | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = NativeSession(
            engine, settings, observer=observer, now=clock(), greeting=greeting
        )
        super().__init__(socket, self._session, NAME, clock)
        self._engine = engine
        self._clauses: dict[int, _Clause] = {}

    def perform(self, command: Command) -> None:
        match command:
            case StartSynthesis(number, request):
                clause = self._clauses[number] = _Clause()
                clause.go.set()
                clause.task = self.start(
                    self._speak(number, request, clause), f"speak context {number}"
                )
            case StopSynthesis(number):
                stopped = self._clauses.pop(number, None)
                if stopped is not None and stopped.task is not None:
                    stopped.task.cancel()
            case PauseSynthesis(number):
                if number in self._clauses:
                    self._clauses[number].go.clear()
            case ResumeSynthesis(number):
                if number in self._clauses:
                    self._clauses[number].go.set()
            case LoadVoice(message):
                self.start(self._load(message), "load a voice")

    async def _speak(self, number: int, request: SynthesisRequest, clause: _Clause) -> None:
        session = self._session
        try:
            session.began(number, self._clock())
            async with contextlib.aclosing(self._engine.synthesize(request)) as chunks:
                async for chunk in chunks:
                    self.act(session.produced(number, chunk, self._clock()))
                    await clause.go.wait()
            commands = session.generated(number, self._clock())
        except Exception as error:
            failure = speech_error(error, f"speaking context {number}")
            commands = session.failed(number, failure, self._clock())
        finally:
            if self._clauses.get(number) is clause:
                del self._clauses[number]
        self.act(commands)

    async def _load(self, message: VoiceLoad) -> None:
        session, request_id = self._session, message.request_id
        try:
            loaded = await _load_voice(self._engine, message)
        except Exception as error:
            failure = speech_error(error, "loading a voice")
            commands = session.voice_failed(request_id, failure, self._clock())
        else:
            commands = session.voice_loaded(request_id, loaded, self._clock())
        self.act(commands)


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


def _from_base64(text: str) -> bytes:
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
