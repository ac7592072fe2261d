"""What a session wants done."""

from __future__ import annotations

from dataclasses import dataclass

from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_wire.messages import VoiceLoad


@dataclass(frozen=True)
class StartSynthesis:
    """Give a clause of a context to the engine; a context has one at a time."""

    context_no: int
    request: SynthesisRequest


@dataclass(frozen=True)
class StopSynthesis:
    """Take a context's clause back from the engine, at once."""

    context_no: int


@dataclass(frozen=True)
class PauseSynthesis:
    """Do not ask the engine for more of this context."""

    context_no: int


@dataclass(frozen=True)
class ResumeSynthesis:
    """Ask the engine for more of this context again."""

    context_no: int


@dataclass(frozen=True)
class LoadVoice:
    """Have the engine make a voice ready; answer by ``voice_loaded`` or ``voice_failed``."""

    message: VoiceLoad


@dataclass(frozen=True)
class Close:
    """Close the connection once everything is written."""

    code: int
    reason: str


Command = StartSynthesis | StopSynthesis | PauseSynthesis | ResumeSynthesis | LoadVoice | Close
