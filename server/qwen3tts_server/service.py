"""Engine and connections of one server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeVar

from qwen3tts_engine.base import Engine
from qwen3tts_server.dialects.encoding import EncodingThreads
from qwen3tts_server.metrics import ServerMetrics, UtteranceLog
from qwen3tts_server.recognition import Recognition
from qwen3tts_server.settings import ServerSettings
from qwen3tts_server.speech_stream import SpeechStream, UtteranceObserver
from qwen3tts_server.voices.catalogue import VoiceCatalogue
from qwen3tts_settings.building import build
from qwen3tts_settings.entries import entry_of
from qwen3tts_wire.errors import ServerBusy, SpeechError
from qwen3tts_wire.messages import ContextOpen

T = TypeVar("T")

CLOSE_GRACE_S = 2.0
"""Time for clients to answer a close."""


class Service:
    """Engine, metrics and connections, shared by dialects."""

    def __init__(self, engine: Engine, settings: ServerSettings) -> None:
        self.voices = (
            engine
            if isinstance(engine, VoiceCatalogue)
            else VoiceCatalogue(engine, settings.voices)
        )
        """Engine with all voice names."""
        if settings.access.has_keys:
            self.voices.suggests_brought = False
        self.engine: Engine = self.voices
        self.settings = settings
        self.encoding = EncodingThreads()
        self.recognition = Recognition(self.engine, settings.openai.whisper)
        self.meter = ServerMetrics(self.engine)
        self.started = False
        self.draining = False
        self._under_way: dict[object, Callable[[float], None]] = {}
        """Connections and requests with drain callbacks."""
        self._speaking: set[SpeechStream] = set()
        self.dialects_configured: set[str] = set()
        """Dialects that have read their section."""
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def connections(self) -> int:
        return len(self._under_way)

    @property
    def ready(self) -> bool:
        return self.started and not self.draining

    async def start(self) -> None:
        if not self.started:
            self.recognition.start()
            await self.engine.start()
            self.started = True

    async def close(self) -> None:
        self.encoding.close()
        self.recognition.close()
        if self.started:
            self.started = False
            await self.engine.close()

    async def drain(self, within_s: float | None = None) -> None:
        if within_s is None:
            within_s = self.settings.drain_timeout_s
        self.draining = True
        for on_drain in list(self._under_way.values()):
            on_drain(within_s)
        late = asyncio.get_running_loop().call_later(within_s, self._end_speaking)
        try:
            with contextlib.suppress(TimeoutError):
                # A client that reads nothing can hold a close back; it is cut off then.
                await asyncio.wait_for(self._idle.wait(), within_s + CLOSE_GRACE_S)
        finally:
            late.cancel()

    def _end_speaking(self) -> None:
        for each in list(self._speaking):
            each.fail(ServerBusy("The server stopped before the end of the text."))

    def dialect_settings(self, name: str, kind: type[T]) -> T:
        self.dialects_configured.add(name)
        path = f"server.dialects.{name}"
        return build(kind, entry_of(self.settings.dialects.get(name, {}), path), path)

    def observer(self, dialect: str) -> UtteranceObserver:
        return UtteranceLog(self.meter.dialect(dialect), dialect)

    @contextlib.contextmanager
    def serving(
        self, dialect: str, on_drain: Callable[[float], None] = lambda _: None
    ) -> Iterator[None]:
        """Count a connection or request; ``on_drain`` gets the seconds left.

        Raises:
            ServerBusy: not ready, stopping, or full.
        """
        try:
            if not self.ready:
                raise ServerBusy("The server is stopping or not ready.", remedy="Try again later.")
            if self.connections >= self.settings.max_connections:
                raise ServerBusy(
                    f"The server has all the {self.settings.max_connections} connections it takes.",
                    remedy="Try again later.",
                )
        except SpeechError as error:
            self.meter.dialect(dialect).errored(error.code)
            raise
        key = object()
        self._under_way[key] = on_drain
        self._idle.clear()
        self.meter.connected(dialect, 1)
        try:
            yield
        finally:
            self.meter.connected(dialect, -1)
            del self._under_way[key]
            if not self._under_way:
                self._idle.set()

    @contextlib.asynccontextmanager
    async def speaking(self, order: ContextOpen, dialect: str) -> AsyncIterator[SpeechStream]:
        observer = self.observer(dialect)
        # A voice that another replica has just stored; what is wrong with a name is said below.
        with contextlib.suppress(SpeechError):
            await self.voices.find(order.voice, order.language)
        try:
            speaking = SpeechStream(self.engine, order, self.settings, observer)
        except SpeechError as error:
            observer.errored(error.code)
            raise
        self._speaking.add(speaking)
        try:
            yield speaking
        finally:
            self._speaking.discard(speaking)
            await speaking.aclose()
