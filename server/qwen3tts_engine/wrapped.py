"""Engine decorator, and what an engine offers however it is wrapped."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from qwen3tts_engine.base import (
    Alignment,
    ClonesVoices,
    Engine,
    EngineLoad,
    Mode,
    PcmChunk,
    ReportsHealth,
    ReportsLoad,
    SynthesisRequest,
    TakesEmbeddings,
    Voice,
)
from qwen3tts_engine.recogniser import HasRecogniser, Recogniser


class WrappedEngine:
    """Delegates everything to ``inner``; subclasses change their part."""

    def __init__(self, inner: Engine) -> None:
        self.inner = inner

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def sample_rate(self) -> int:
        return self.inner.sample_rate

    @property
    def model(self) -> str:
        return self.inner.model

    @property
    def options(self) -> frozenset[str]:
        return self.inner.options

    @property
    def alignment(self) -> Alignment:
        return self.inner.alignment

    @property
    def notes(self) -> Sequence[str]:
        return tuple(getattr(self.inner, "notes", ()))

    def modes(self, voice: str | None) -> Sequence[Mode]:
        return self.inner.modes(voice)

    async def start(self) -> None:
        await self.inner.start()

    async def close(self) -> None:
        await self.inner.close()

    def voices(self) -> Sequence[Voice]:
        return self.inner.voices()

    def check(self, voice: str | None, language: str | None) -> None:
        self.inner.check(voice, language)

    def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[PcmChunk, None]:
        return self.inner.synthesize(request)


def cloning(engine: Engine) -> ClonesVoices | None:
    """Return the engine as one that clones voices; None: it cannot."""
    if isinstance(engine, WrappedEngine):
        if cloning(engine.inner) is None:
            return None
        return engine if isinstance(engine, ClonesVoices) else cloning(engine.inner)
    if task_of(engine) in ("custom_voice", "voice_design"):
        # The engine could, with a checkpoint that was made for it.
        return None
    return engine if isinstance(engine, ClonesVoices) else None


def embedder_of(engine: Engine) -> TakesEmbeddings | None:
    if cloning(engine) is None:
        return None
    inner: object = engine
    while isinstance(inner, WrappedEngine):
        inner = inner.inner
    return inner if isinstance(inner, TakesEmbeddings) else None


def recogniser_of(engine: Engine) -> Recogniser | None:
    while isinstance(engine, WrappedEngine):
        engine = engine.inner
    return engine.recogniser() if isinstance(engine, HasRecogniser) else None


def healthy(engine: Engine) -> bool:
    while isinstance(engine, WrappedEngine):
        engine = engine.inner
    return engine.healthy() if isinstance(engine, ReportsHealth) else True


def load_of(engine: Engine) -> EngineLoad | None:
    while isinstance(engine, WrappedEngine):
        engine = engine.inner
    return engine.load() if isinstance(engine, ReportsLoad) else None


def task_of(engine: Engine) -> str | None:
    """Return a Qwen3-TTS checkpoint's task, such as ``custom_voice``."""
    while isinstance(engine, WrappedEngine):
        engine = engine.inner
    task = getattr(engine, "task", None)
    return task if isinstance(task, str) else None


def model_ids_of(engine: Engine) -> tuple[str, ...]:
    while isinstance(engine, WrappedEngine):
        engine = engine.inner
    return tuple(getattr(engine, "model_ids", ()))
