"""An engine in front of another: what it does not do itself, the inner one does."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from qwen3tts_engine.base import (
    Alignment,
    ClonesVoices,
    Engine,
    EngineLoad,
    HasRecogniser,
    Mode,
    PcmChunk,
    Recogniser,
    ReportsHealth,
    ReportsLoad,
    SynthesisRequest,
    TakesEmbeddings,
    Voice,
)


class WrappedEngine:
    """Passes everything on to ``inner``; subclasses change what they are for."""

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
        """How this voice takes text."""
        return self.inner.modes(voice)

    async def start(self) -> None:
        """Make ready."""
        await self.inner.start()

    async def close(self) -> None:
        """Free everything."""
        await self.inner.close()

    def voices(self) -> Sequence[Voice]:
        """The voices on offer, the default first."""
        return self.inner.voices()

    def check(self, voice: str | None, language: str | None) -> None:
        """Refuse early what ``synthesize`` would refuse."""
        self.inner.check(voice, language)

    def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[PcmChunk, None]:
        """Speak one segment."""
        return self.inner.synthesize(request)


def cloning(engine: Engine) -> ClonesVoices | None:
    """The engine as one that makes voices of recordings, however it is wrapped; None: it cannot."""
    if isinstance(engine, WrappedEngine):
        if cloning(engine.inner) is None:
            return None
        return engine if isinstance(engine, ClonesVoices) else cloning(engine.inner)
    if task_of(engine) in ("custom_voice", "voice_design"):
        # The engine could, with a checkpoint that was made for it.
        return None
    return engine if isinstance(engine, ClonesVoices) else None


def embedder_of(engine: Engine) -> TakesEmbeddings | None:
    """What makes voices of speaker embeddings, however it is wrapped; None: nothing does."""
    if cloning(engine) is None:
        return None
    inner: object = engine
    while isinstance(inner, WrappedEngine):
        inner = inner.inner
    return inner if isinstance(inner, TakesEmbeddings) else None


def recogniser_of(engine: Engine) -> Recogniser | None:
    """What writes down speech beside the engine, however it is wrapped; None: nothing does."""
    while isinstance(engine, WrappedEngine):
        engine = engine.inner
    return engine.recogniser() if isinstance(engine, HasRecogniser) else None


def healthy(engine: Engine) -> bool:
    """Whether the engine can speak, however it is wrapped; one that does not say so can."""
    while isinstance(engine, WrappedEngine):
        engine = engine.inner
    return engine.healthy() if isinstance(engine, ReportsHealth) else True


def load_of(engine: Engine) -> EngineLoad | None:
    """How busy the engine is, however it is wrapped; None: it does not say."""
    while isinstance(engine, WrappedEngine):
        engine = engine.inner
    return engine.load() if isinstance(engine, ReportsLoad) else None


def task_of(engine: Engine) -> str | None:
    """What a Qwen3-TTS checkpoint was made for: ``custom_voice``, ``voice_design`` or ``base``;
    None for an engine that has no such thing."""
    while isinstance(engine, WrappedEngine):
        engine = engine.inner
    task = getattr(engine, "task", None)
    return task if isinstance(task, str) else None


def model_ids_of(engine: Engine) -> tuple[str, ...]:
    """Names of the model besides ``Engine.model``, the first its own; empty for an engine that
    has none."""
    while isinstance(engine, WrappedEngine):
        engine = engine.inner
    return tuple(getattr(engine, "model_ids", ()))
