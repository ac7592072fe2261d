"""Utterance as an asynchronous iterator, for other dialects."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Protocol, cast

from qwen3tts_engine.base import Engine, SynthesisRequest
from qwen3tts_engine.starter.engine import openings_of, starters_of
from qwen3tts_engine.starter.memory import SpeechStyle
from qwen3tts_engine.text_plan import PlanMode, mode_for
from qwen3tts_server.settings import ServerSettings
from qwen3tts_server.utterance import AlignedWords, AudioPiece, Done, Failed, Utterance
from qwen3tts_server.voices.catalogue import VoiceCatalogue
from qwen3tts_text.segmenter import SegmenterSettings
from qwen3tts_wire.errors import EngineFailed, SpeechError
from qwen3tts_wire.messages import ContextOpen, PlayoutReport

log = logging.getLogger(__name__)


class UtteranceObserver(Protocol):
    """Observer; must neither fail nor block."""

    def opened(self, utterance: Utterance) -> None: ...

    def reported(self, utterance: Utterance, report: PlayoutReport, now: float) -> None: ...

    def ended(self, utterance: Utterance, outcome: str, now: float) -> None:
        """End as ``done``, ``cancelled``, ``gone`` (client left), or an error's code.

        A done one may be cancelled later.
        """
        ...

    def errored(self, code: str) -> None: ...


class NullObserver:
    def opened(self, utterance: Utterance) -> None: ...

    def reported(self, utterance: Utterance, report: PlayoutReport, now: float) -> None: ...

    def ended(self, utterance: Utterance, outcome: str, now: float) -> None: ...

    def errored(self, code: str) -> None: ...


def utterance_for(
    engine: Engine,
    order: ContextOpen,
    settings: ServerSettings,
    segmenter: SegmenterSettings,
    now: float,
) -> Utterance:
    if isinstance(engine, VoiceCatalogue):
        # To its end, though the name be given to another voice meanwhile.
        order = replace(order, voice=engine.bound(order.voice, order.language))
    mode = mode_for(engine, order.voice, cast(PlanMode, order.mode))
    starters = starters_of(engine)
    openings = None
    if starters is not None:
        style = SpeechStyle(
            order.voice, order.language, order.speed, order.instructions, order.sampling, order.seed
        )
        openings = openings_of(engine, style)
        if mode == "clause":
            segmenter = starters.settings.clauses(segmenter)
    return Utterance(order, settings, engine.sample_rate, segmenter, now, mode, openings)


class SpeechStream:
    """Iterator of ``AlignedWords`` and ``AudioPiece`` in the order's format.

    Clauses are spoken in turn; the engine waits while ``ahead_ms`` are unread. Leaving the
    context takes the clause back.

    Raises:
        UnknownVoice: no such voice or language.
        BadRequest: the format is not served.
        EngineUnavailable: the resampling library is missing.
    """

    def __init__(
        self,
        engine: Engine,
        order: ContextOpen,
        settings: ServerSettings,
        observer: UtteranceObserver | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not order.format.producible:
            order.format.checked()
        engine.check(order.voice, order.language)
        self._engine = engine
        self._clock = clock
        self._observer = observer or NullObserver()
        self.utterance = utterance_for(engine, order, settings, SegmenterSettings(), clock())
        """State: ``marks``, ``words``, ``sent``, ``generated``, ``text``."""
        self._most_ms = settings.limits.max_window_ms
        self._go = asyncio.Event()
        self._go.set()
        self._wake = asyncio.Event()
        self._clause: asyncio.Task[None] | None = None
        self._closed = False
        self._outcome: str | None = None
        self._error: SpeechError | None = None
        self._pause: asyncio.TimerHandle | None = None
        """Flush on a pause."""
        self._observer.opened(self.utterance)

    # --- text in ---

    def append(self, text: str) -> None:
        self.utterance.append(text, self._clock())
        self._advance()

    def flush(self) -> None:
        self.utterance.flush(self._clock())
        self._advance()

    def end(self) -> None:
        self.utterance.end(self._clock())
        self._advance()

    # --- sound out ---

    def __aiter__(self) -> SpeechStream:
        return self

    async def __anext__(self) -> AudioPiece | AlignedWords:
        while True:
            if self._error is not None:
                raise self._error
            if self._closed:
                raise StopAsyncIteration
            item = self.utterance.take(self._clock())
            if item is None:
                self._wake.clear()
                await self._wake.wait()
                continue
            self.utterance.credit(self._most_ms)
            self._advance()
            match item:
                case Done():
                    self._end("done")
                    raise StopAsyncIteration
                case Failed(error):
                    self._end(error.code)
                    raise error
                case _:
                    return item

    def fail(self, error: SpeechError) -> None:
        """End with ``error``, raised by the iterator."""
        if self._outcome is None:
            self._error = error
            self._end(error.code)
            self._stop()

    def cancel(self) -> None:
        if self._outcome is None:
            self._closed = True
            self._outcome = "cancelled"
            self._observer.ended(self.utterance, "cancelled", self._clock())
            self._stop()

    async def aclose(self) -> None:
        """Take the clause back; idempotent."""
        self._closed = True
        self._end("gone")
        self._stop()
        if self._clause is not None:
            await asyncio.wait({self._clause})

    async def __aenter__(self) -> SpeechStream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    # --- within ---

    def _end(self, outcome: str) -> None:
        if self._outcome is None:
            self._outcome = outcome
            if outcome not in ("done", "gone"):
                self._observer.errored(outcome)
            self._observer.ended(self.utterance, outcome, self._clock())
            self._schedule_flush()

    def _stop(self) -> None:
        self.utterance.release()
        if self._clause is not None:
            self._clause.cancel()
        self._schedule_flush()
        self._wake.set()

    def _advance(self) -> None:
        if self._outcome is not None:
            return
        utterance = self.utterance
        if utterance.paused and utterance.drained:
            utterance.paused = False
            self._go.set()
        elif not utterance.paused and utterance.full:
            utterance.paused = True
            self._go.clear()
        request = utterance.next_request()
        if request is not None:
            self._clause = asyncio.create_task(self._speak(request), name="speak a clause")
        self._schedule_flush()
        self._wake.set()

    def _schedule_flush(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        now = self._clock()
        due = self.utterance.flush_deadline(now) if self._outcome is None else None
        if due is not None:
            loop = asyncio.get_running_loop()
            self._pause = loop.call_later(max(0.0, due - now), self._flush_if_due)

    def _flush_if_due(self) -> None:
        now = self._clock()
        due = self.utterance.flush_deadline(now)
        if due is not None and due <= now:
            self.flush()
        else:
            self._schedule_flush()

    async def _speak(self, request: SynthesisRequest) -> None:
        utterance = self.utterance
        try:
            utterance.mark("slot", self._clock())
            async with contextlib.aclosing(self._engine.synthesize(request)) as chunks:
                async for chunk in chunks:
                    utterance.produced(chunk, self._clock())
                    self._advance()
                    await self._go.wait()
        except SpeechError as error:
            utterance.failed(error)
        except Exception:
            log.exception("the engine broke")
            utterance.failed(
                EngineFailed("The engine broke.", remedy="The server's log has the reason.")
            )
        else:
            utterance.generated_clause(self._clock())
        self._advance()
