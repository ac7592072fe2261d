"""Commands of a native session to the engine."""

from __future__ import annotations

from dataclasses import dataclass

from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_server.connection import (
    Close,
)
from qwen3tts_wire.messages import (
    VoiceLoad,
)


@dataclass(frozen=True)
class StartSynthesis:
    """Give a context's clause to the engine, one at a time."""

    context_no: int
    request: SynthesisRequest


@dataclass(frozen=True)
class StopSynthesis:
    context_no: int


@dataclass(frozen=True)
class PauseSynthesis:
    """Backpressure: no more of this context."""

    context_no: int


@dataclass(frozen=True)
class ResumeSynthesis:
    context_no: int


@dataclass(frozen=True)
class LoadVoice:
    """Load a voice; then ``voice_loaded`` or ``voice_failed``."""

    message: VoiceLoad


Command = StartSynthesis | StopSynthesis | PauseSynthesis | ResumeSynthesis | LoadVoice | Close
