"""Pipecat's text-to-speech service over ``qwen3tts.speech.v1``."""

from .service import Qwen3TTSService
from .settings import Qwen3TTSSettings

__all__ = ["Qwen3TTSService", "Qwen3TTSSettings"]
