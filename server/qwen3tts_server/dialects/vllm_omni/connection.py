"""Route and connection of vLLM-Omni's WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from fastapi import FastAPI
from starlette.websockets import WebSocket

from qwen3tts_engine.base import SAMPLE_RATE
from qwen3tts_server.connection import Connection, speech_error
from qwen3tts_server.dialects.http_errors import code_of
from qwen3tts_server.dialects.openai.request import Models
from qwen3tts_server.dialects.vllm_omni.messages import SessionConfig, UnitRequests, message
from qwen3tts_server.dialects.vllm_omni.session import VllmOmniSession
from qwen3tts_server.dialects.vllm_omni.utterances import Command, More, Start, Stop, Unit
from qwen3tts_server.keys import WEBSOCKET, Role
from qwen3tts_server.service import Service
from qwen3tts_server.speech_stream import SpeechStream
from qwen3tts_server.utterance import AlignedWords
from qwen3tts_wire.errors import LimitExceeded, SpeechError
from qwen3tts_wire.heard import Word

log = logging.getLogger(__name__)

NAME = "vllm_omni"
"""In metrics and logs."""
FRAME_SAMPLES = SAMPLE_RATE * 80 // 1000
"""Codec frame, unit of ``max_new_tokens``."""
TURN_CHARS = 4096
"""Characters cut into clauses in a turn."""
MESSAGE_CHARS = 64
"""Least cost of a message."""


class VllmOmniConnection(Connection[Command]):
    """One client, one unit at a time."""

    def __init__(
        self,
        socket: WebSocket,
        service: Service,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service = service
        self._settings = service.settings.vllm_omni
        self._observer = service.meter.dialect(NAME)
        self._session = VllmOmniSession(
            self._settings,
            now=clock(),
            backlog_bytes=service.settings.backlog_bytes,
            find_model=Models(service).find,
            on_error=self._observer.errored,
        )
        super().__init__(socket, self._session, NAME, clock)
        self._orders = UnitRequests(service.voices)
        self._saying: asyncio.Task[None] | None = None
        self._speaking: SpeechStream | None = None
        self._more: deque[More] = deque()
        """Unit text not yet with the engine."""
        self._grown = asyncio.Event()

    def perform(self, command: Command) -> None:
        match command:
            case Start(unit):
                self._speaking = None
                self._more.clear()
                self._saying = self.start(self._say(unit), "say a unit")
            case More():
                self._more.append(command)
                self._grown.set()
            case Stop():
                if self._speaking is not None:
                    self._speaking.cancel()  # requested by the client, which is no loss of it
                if self._saying is not None:
                    self._saying.cancel()

    # --- the engine ---

    async def _say(self, unit: Unit) -> None:
        session = self._session
        try:
            words = await self._speak(unit)
        except Exception as error:
            failure = speech_error(error, "saying a unit")
            if failure is not error:
                self._observer.errored(failure.code)
            commands = session.failed(unit, failure, self._clock())
        else:
            commands = session.finished(unit, words, self._clock())
        self.act(commands)

    async def _speak(self, unit: Unit) -> Sequence[Word]:
        config = unit.config
        with self._counting():
            order = await self._orders.order(config)
        sound = _Sound(config, self._settings.max_file_s)
        async with self._service.speaking(order, NAME) as speaking:
            self._speaking = speaking
            speaking.utterance.context = unit.voice
            writing = asyncio.create_task(self._hand_over(unit, speaking), name="hand over text")
            try:
                await self._send_sound(unit, speaking, sound)
            finally:
                writing.cancel()
                await asyncio.wait({writing})
        if not config.stream_audio:
            with self._counting():
                whole = await self._service.encoding.whole(
                    config.response_format, SAMPLE_RATE, bytes(sound.file)
                )
            self.act(self._session.audio(unit, whole, self._clock()))
        return [word for word in speaking.utterance.words if 2 * word.end <= sound.count]

    async def _send_sound(self, unit: Unit, speaking: SpeechStream, sound: _Sound) -> None:
        async for item in speaking:
            if isinstance(item, AlignedWords):
                continue
            with self._counting():
                data = sound.take(item.data)
            if data:
                # The engine waits with us for a slow client.
                self.act(self._session.audio(unit, data, self._clock()))
                await self.sound_taken()
            if sound.full:
                speaking.cancel()

    async def _hand_over(self, unit: Unit, speaking: SpeechStream) -> None:
        await _append(speaking, unit.text)
        flush = unit.config.streaming_mode == "sentence_commit"
        final = not unit.grows
        while not final:
            if flush:
                speaking.flush()
            while not self._more:
                self._grown.clear()
                await self._grown.wait()
            more = self._more.popleft()
            await _append(speaking, more.text)
            flush, final = more.flush, more.final
        speaking.end()

    @contextlib.contextmanager
    def _counting(self) -> Iterator[None]:
        try:
            yield
        except SpeechError as error:
            self._observer.errored(code_of(error))
            raise


async def _append(speaking: SpeechStream, text: str) -> None:
    for start in range(0, len(text), TURN_CHARS):
        if start:
            await asyncio.sleep(0)
        speaking.append(text[start : start + TURN_CHARS])


class _Sound:
    def __init__(self, config: SessionConfig, most_s: float) -> None:
        self._stream = config.stream_audio
        self._most_s = most_s
        self._most = (config.max_new_tokens or 0) * FRAME_SAMPLES * 2
        """Requested bytes; 0: all."""
        self.count = 0
        self.file = bytearray()

    @property
    def full(self) -> bool:
        return 0 < self._most <= self.count

    def take(self, data: bytes) -> bytes:
        if self._most:
            data = data[: self._most - self.count]
        self.count += len(data)
        if self._stream:
            return data
        if self.count > self._most_s * SAMPLE_RATE * 2:
            raise LimitExceeded(
                f"A unit of more than {self._most_s:g} s of sound cannot be sent as one file.",
                remedy="Ask for stream_audio, or for split_granularity sentence.",
            )
        self.file += data
        return b""


PATH = "/v1/audio/speech/stream"
ROUTES = {(WEBSOCKET, PATH): Role.SPEAK}


def add_routes(app: FastAPI, service: Service) -> None:
    @app.websocket(PATH)
    async def stream(socket: WebSocket) -> None:
        await serve_stream(socket, service)


async def serve_stream(socket: WebSocket, service: Service) -> None:
    await socket.accept()
    connection = VllmOmniConnection(socket, service)
    await connection.serve(
        service,
        lambda error: message("error", message=str(error), code=error.code, retryable=True),
    )
