"""A text that may still grow, spoken by the engine piece by piece, for one reader."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing
from dataclasses import dataclass

from qwen3tts_engine.base import (
    ContextVoice,
    Engine,
    GenerationLimits,
    PcmChunk,
    PredictorSampling,
    SynthesisRequest,
)
from qwen3tts_engine.text_plan import LAYOUTS, Piece, PlanMode, TextPlan, mode_for
from qwen3tts_wire.messages import Sampling


@dataclass(frozen=True, slots=True)
class Manner:
    """How a text is spoken: the fields of SynthesisRequest that hold for all of its pieces."""

    voice: str | None = None
    language: str | None = None
    instructions: str | None = None
    sampling: Sampling | None = None
    seed: int | None = None
    initial_codec_chunk_frames: int | None = None
    limits: GenerationLimits | None = None
    predictor: PredictorSampling | None = None


class Speech:
    """Used within one event loop. The next piece is begun when the last is made, not when it is
    read, as long as no more than ``ahead`` samples wait for the reader."""

    def __init__(self, engine: Engine, mode: PlanMode, manner: Manner, *, ahead: int) -> None:
        """``mode`` becomes ``clause`` for a voice that takes no text while it speaks.

        Raises:
            UnknownVoice: the engine has no such voice or language.
        """
        engine.check(manner.voice, manner.language)
        self.mode: PlanMode = mode_for(engine, manner.voice, mode)
        """The mode that it is spoken in."""
        self._engine = engine
        self._manner = manner
        self._plan = TextPlan(self.mode, language=manner.language)
        self._context = ContextVoice()
        self._ahead = ahead
        self._text_came = asyncio.Event()
        self._read = asyncio.Event()
        self._made = asyncio.Event()
        self._chunks: deque[PcmChunk] = deque()
        self._unread = 0
        self._sounded = False
        self._broken: Exception | None = None
        self._task = asyncio.get_running_loop().create_task(self._speak(), name="speech")
        self._task.add_done_callback(lambda _: self._made.set())

    def append(self, text: str) -> None:
        """More text."""
        self._plan.append(text)
        self._text_came.set()

    def end(self) -> None:
        """No more text."""
        self._plan.end()
        self._text_came.set()

    def fail(self, error: Exception) -> None:
        """The text broke off: what was made before it is read, then ``next`` raises ``error``."""
        self._broken = error
        self._task.cancel()

    @property
    def closed(self) -> bool:
        """Whether nobody reads any more, or can."""
        return self._task.done()

    async def next(self) -> PcmChunk | None:
        """The next chunk; None at the end.

        Raises:
            SpeechError: it broke; what was made before has been read.
        """
        while not self._chunks:
            if self._task.done():
                if self._broken is not None:
                    raise self._broken
                self._task.result()
                return None
            self._made.clear()
            await self._made.wait()
        chunk = self._chunks.popleft()
        self._unread -= chunk.samples
        self._read.set()
        return chunk

    async def close(self) -> None:
        """Nobody reads any more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._plan.close()

    async def _speak(self) -> None:
        while not self._plan.finished():
            piece = self._plan.next()
            if piece is None:
                self._text_came.clear()
                await self._text_came.wait()
                continue
            async with aclosing(self._engine.synthesize(self._request(piece))) as chunks:
                async for chunk in chunks:
                    await self._put(chunk)
            self._plan.generated()

    async def _put(self, chunk: PcmChunk) -> None:
        while self._unread > self._ahead:
            self._read.clear()
            await self._read.wait()
        self._chunks.append(chunk)
        self._sounded = self._sounded or bool(chunk.pcm)
        self._unread += chunk.samples
        self._made.set()

    def _request(self, piece: Piece) -> SynthesisRequest:
        manner = self._manner
        return SynthesisRequest(
            text=piece.text,
            offsets=piece.offsets,
            final=piece.final,
            continued=self._sounded,
            more=piece.more,
            layout=LAYOUTS.get(self.mode),
            context=self._context,
            voice=manner.voice,
            language=manner.language,
            instructions=manner.instructions,
            sampling=manner.sampling,
            seed=manner.seed,
            limits=manner.limits,
            predictor=manner.predictor,
            initial_codec_chunk_frames=manner.initial_codec_chunk_frames,
        )
