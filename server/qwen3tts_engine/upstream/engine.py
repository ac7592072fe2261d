"""Engine ``upstream``: another speech server by vLLM-Omni's WebSocket or OpenAI's REST."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace

from qwen3tts_engine.base import (
    SAMPLE_RATE,
    Alignment,
    EngineLoad,
    Mode,
    PcmChunk,
    SynthesisRequest,
    Voice,
)
from qwen3tts_engine.model_names import names_of
from qwen3tts_engine.request_text import check_text
from qwen3tts_engine.speech_rhythm import SpeechRates
from qwen3tts_engine.upstream.backend import SynthesisOrder, VoiceOffer
from qwen3tts_engine.upstream.http import AGAIN, Stalled, Unreachable
from qwen3tts_engine.upstream.server import UpstreamServer
from qwen3tts_engine.upstream.settings import UpstreamSettings
from qwen3tts_engine.upstream.sound import ReadAhead, UpstreamAudio, speakable
from qwen3tts_wire.errors import EngineFailed, EngineUnavailable, ServerBusy, SpeechError


class RequestSlots:
    def __init__(self, count: int, most_waiting: int, patience_s: float) -> None:
        self._count = count
        self._most_waiting = most_waiting
        self._patience_s = patience_s
        self._free = asyncio.Semaphore(count)
        self._busy = 0
        self._waiting = 0

    @property
    def load(self) -> EngineLoad:
        return EngineLoad(self._count, self._busy, self._waiting)

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        if self._free.locked() and self._waiting >= self._most_waiting:
            raise ServerBusy(
                f"{self._count} requests are at the upstream server and {self._waiting} wait.",
                remedy="Try again later.",
            )
        self._waiting += 1
        try:
            async with asyncio.timeout(self._patience_s):
                await self._free.acquire()
        except TimeoutError as error:
            raise ServerBusy(
                f"All {self._count} connections to the upstream server stayed busy.",
                remedy="Try again later, or allow more (upstream.max_connections).",
            ) from error
        finally:
            self._waiting -= 1
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            self._free.release()


log = logging.getLogger(__name__)

FIRST_WAIT_S = 0.05
"""Before the second try; each further wait is twice as long, up to LONGEST_WAIT_S."""
LONGEST_WAIT_S = 1.0


class UpstreamEngine:
    name = "upstream"
    sample_rate = SAMPLE_RATE
    alignment: Alignment = "estimated"

    def __init__(self, settings: UpstreamSettings) -> None:
        if not settings.url:
            raise ValueError("upstream.url is missing: ws(s)://… or http(s)://…")
        self.settings = settings
        self._server: UpstreamServer | None = None
        self._rates = SpeechRates()
        self._slots = RequestSlots(
            settings.max_connections, settings.max_waiting, settings.first_audio_s
        )
        self._under_way: set[ReadAhead] = set()

    # --- what it is ---

    @property
    def model(self) -> str:
        if self._server is None:
            return self.settings.model or "unknown"
        return self._server.model

    @property
    def model_ids(self) -> tuple[str, ...]:
        return names_of([self.model]) if self._server is None else self._server.model_ids

    @property
    def task(self) -> str | None:
        return self.settings.task or None

    @property
    def options(self) -> frozenset[str]:
        # A speed that the server does not have is made of its sound.
        return self._sent_options | {"speed"}

    @property
    def _sent_options(self) -> frozenset[str]:
        if self.settings.options is not None:
            return frozenset(self.settings.options)
        return UpstreamServer.usual_options(self.settings)

    @property
    def notes(self) -> Sequence[str]:
        return () if self._server is None else tuple(self._server.notes)

    def load(self) -> EngineLoad:
        return self._slots.load

    def healthy(self) -> bool:
        return self._server is not None and self._server.healthy()

    def modes(self, voice: str | None) -> Sequence[Mode]:
        return ("clause",)

    def voices(self) -> Sequence[Voice]:
        return self._started().offer.voices

    def check(self, voice: str | None, language: str | None) -> None:
        server = self._started()
        try:
            server.offer.voice(voice)
        except SpeechError:
            server.refresh_soon()
            raise
        server.offer.language(language)

    # --- life ---

    async def start(self) -> None:
        if self._server is not None:
            return
        server = UpstreamServer(self.settings)
        late = time.monotonic() + self.settings.start_s
        try:
            for wait in _waits():
                try:
                    await server.look()
                    break
                except SpeechError as error:
                    if error.retryable and time.monotonic() + wait < late:
                        await asyncio.sleep(wait)
                        continue
                    raise EngineUnavailable(
                        f"The upstream server at {server.address.shown} cannot be used:"
                        f" {error.message}",
                        remedy=error.remedy or "Check upstream.url, and that the server runs.",
                    ) from error
        except BaseException:
            await server.close()
            raise
        self._server = server
        log.debug("speaking with the server at %s, %s", server.address.shown, self.settings.kind)

    async def close(self) -> None:
        server, self._server = self._server, None
        for ahead in list(self._under_way):
            ahead.fail(EngineFailed("The engine was closed while it spoke."))
        if server is not None:
            await server.close()

    # --- speech ---

    async def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[PcmChunk, None]:
        server = self._started()
        order = self._order(request, server.offer)
        check_text(request.text, self.settings.max_chars)
        if not speakable(request.text):
            return
        voicing = UpstreamAudio(
            request, self._rates, order.voice, trim=self.settings.trim_silence, speed=order.speed
        )
        marks: dict[str, float] = {}
        ahead = ReadAhead(self._sound(server, order, marks), self.settings.buffer_bytes)
        self._under_way.add(ahead)
        first = True
        try:
            async for piece in ahead:
                for chunk in voicing.push(piece):
                    yield replace(chunk, marks=dict(marks)) if first else chunk
                    first = False
                    await asyncio.sleep(0)
                if voicing.ended is not None:
                    break
            for chunk in voicing.end():
                yield replace(chunk, marks=dict(marks)) if first else chunk
        finally:
            self._under_way.discard(ahead)
            await ahead.aclose()

    def _order(self, request: SynthesisRequest, offer: VoiceOffer) -> SynthesisOrder:
        options = self._sent_options
        voice = offer.voice(request.voice)
        order = SynthesisOrder(
            request.text,
            voice=voice or self.settings.default_voice,
            language=offer.language(request.language),
        )
        wanted = {name: getattr(request, name) for name in options if hasattr(order, name)}
        return replace(order, **wanted)

    async def _sound(
        self, server: UpstreamServer, order: SynthesisOrder, marks: dict[str, float]
    ) -> AsyncGenerator[bytes, None]:
        settings = self.settings
        async with self._slots.one():
            begun = time.monotonic()
            marks["slot"] = begun
            failures = 0
            heard = False
            for wait in _waits():
                try:
                    async with aclosing(server.backend.speak(order)) as pieces:
                        async for piece in pieces:
                            heard = True
                            server.lost = False
                            yield piece
                    if not heard:
                        raise EngineFailed("The upstream server made no sound.", remedy=AGAIN)
                    return
                except Unreachable:
                    # It may be about to come back; nothing was asked for yet.
                    if time.monotonic() - begun + wait > settings.reconnect_s:
                        server.lost = True
                        raise
                except EngineFailed as error:
                    failures += 1
                    if heard or isinstance(error, Stalled) or failures > settings.retries:
                        raise
                await asyncio.sleep(wait)

    def _started(self) -> UpstreamServer:
        if self._server is None:
            raise EngineUnavailable(
                "The upstream engine has not been started.", remedy="Await its start() first."
            )
        return self._server


def _waits() -> Iterator[float]:
    wait = FIRST_WAIT_S
    while True:
        yield wait * random.uniform(0.75, 1.25)
        wait = min(LONGEST_WAIT_S, 2 * wait)
