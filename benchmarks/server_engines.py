"""Engines for the server's benchmarks: one that works by the clock, and a watch around any."""

from __future__ import annotations

import asyncio
import math
import struct
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from qwen3tts_engine.base import (
    SAMPLE_RATE,
    Alignment,
    Engine,
    Mode,
    PcmChunk,
    SynthesisRequest,
    Voice,
)
from qwen3tts_engine.wrapped import WrappedEngine
from qwen3tts_wire.errors import UnknownVoice
from qwen3tts_wire.heard import Word

STEP_S = 0.08
"""A codec frame of Qwen3-TTS."""
CHUNK_SAMPLES = round(STEP_S * SAMPLE_RATE)
WORD_CHUNKS = 4
"""A word ends with every so many chunks."""
STAMP = struct.Struct("<4sqq")
MAGIC = b"\x01\x80tt"
"""No sound begins like this."""


@dataclass(frozen=True)
class Script:
    """Behaviour of a scripted voice."""

    chunks: int
    paced: bool = True
    """One chunk at each step of a clock that all requests share, as rows of one batch; else as
    fast as they are taken."""


SCRIPTS = {"short": Script(5), "long": Script(25), "flood": Script(500, paced=False)}


class ScriptedEngine:
    """Chunks of 80 ms on the steps of one clock; costs next to nothing."""

    name = "scripted"
    model = "scripted"
    sample_rate = SAMPLE_RATE
    options: frozenset[str] = frozenset()
    alignment: Alignment = "exact"

    def __init__(self, step_s: float = STEP_S) -> None:
        self._step_s = step_s
        self._pcm = b"\x00\x10" * CHUNK_SAMPLES
        """Loud enough to be heard."""

    def modes(self, voice: str | None) -> Sequence[Mode]:
        """Clauses."""
        return ("clause",)

    async def start(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do."""

    def voices(self) -> Sequence[Voice]:
        """One for each script."""
        return [Voice(name, name, "en-US") for name in SCRIPTS]

    def check(self, voice: str | None, language: str | None) -> None:
        """Refuse what is not a script."""
        if voice is not None and voice not in SCRIPTS:
            raise UnknownVoice(f"No script {voice!r}.")

    async def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[PcmChunk, None]:
        """The chunks of the script."""
        script = SCRIPTS[request.voice or "short"]
        step = math.floor(time.monotonic() / self._step_s) + 1
        for index in range(script.chunks):
            if script.paced:
                await asyncio.sleep(max(0.0, (step + index) * self._step_s - time.monotonic()))
            else:
                await asyncio.sleep(0)
            words: tuple[Word, ...] = ()
            if index % WORD_CHUNKS == WORD_CHUNKS - 1:
                end = (index + 1) * CHUNK_SAMPLES
                at = request.original(0, len(request.text))
                words = (Word("word", end - WORD_CHUNKS * CHUNK_SAMPLES, end, *at),)
            yield PcmChunk(self._pcm, words)


@dataclass
class Watched:
    """Course of one request; times are nanoseconds of the monotonic clock."""

    begun: int
    voice: str | None
    last_chunk: int = 0
    ended: int = 0
    recent: list[int] = field(default_factory=list)
    """Times of its last few chunks."""
    whole: bool = False


class WatchedEngine(WrappedEngine):
    """Any engine; each chunk's first samples say when its request came and when it was given out.

    ``STAMP``: ``MAGIC``, then both times in nanoseconds of the monotonic clock, which all
    processes of a machine share.
    """

    def __init__(self, inner: Engine, *, stamp: bool = True) -> None:
        super().__init__(inner)
        self._stamp = stamp
        self.active: dict[int, Watched] = {}
        self.over: list[Watched] = []
        """Requests that were left before their end."""
        self.finished = 0
        self.given = 0
        """Chunks of all requests."""
        self._count = 0

    async def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[PcmChunk, None]:
        """Speak, and take notes."""
        watched = Watched(time.monotonic_ns(), request.voice)
        self._count += 1
        number = self._count
        self.active[number] = watched
        chunks = self.inner.synthesize(request)
        try:
            async for chunk in chunks:
                watched.last_chunk = time.monotonic_ns()
                self.given += 1
                watched.recent = [*watched.recent[-9:], watched.last_chunk]
                if self._stamp and len(chunk.pcm) >= STAMP.size:
                    head = STAMP.pack(MAGIC, watched.begun, watched.last_chunk)
                    chunk = PcmChunk(
                        head + chunk.pcm[STAMP.size :], chunk.words, chunk.end, chunk.marks
                    )
                yield chunk
            watched.whole = True
        finally:
            await chunks.aclose()
            watched.ended = time.monotonic_ns()
            del self.active[number]
            if watched.whole:
                self.finished += 1
            else:
                self.over.append(watched)


def stamps(data: bytes) -> tuple[int, int] | None:
    """Times of the request and of the chunk that begins here."""
    if len(data) < STAMP.size or data[:4] != MAGIC:
        return None
    _, begun, given = STAMP.unpack_from(data)
    return begun, given


def make_engine(kind: str) -> Engine:
    """``scripted``, ``embedded``, ``piper``, or ``tiny``: a tiny checkpoint of Qwen3-TTS."""
    if kind == "scripted":
        return ScriptedEngine()
    if kind == "embedded":
        from qwen3tts_engine.embedded.engine import EmbeddedEngine

        return EmbeddedEngine()
    if kind == "piper":
        from qwen3tts_engine.piper.engine import PiperEngine

        return PiperEngine()
    import torch

    from qwen3tts_engine.qwen3.engine.engine import Qwen3Engine
    from qwen3tts_engine.qwen3.engine.settings import Qwen3Settings
    from tests.tiny_models.checkpoint import make_tiny

    torch.set_num_threads(1)
    folder = make_tiny(Path(tempfile.mkdtemp(prefix="tiny-")))["custom_voice"]
    return Qwen3Engine(Qwen3Settings(str(folder), positions=2048))
