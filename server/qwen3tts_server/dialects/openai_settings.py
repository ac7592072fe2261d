"""What may be set of the OpenAI routes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

_BATCHES = ("max_batch_items", "max_batch_chars", "batch_slots")


@dataclass(frozen=True)
class OpenAISettings:
    """What may be set of the OpenAI routes. ValueError for what cannot be."""

    stream_default: Literal["raw", "sse"] = "raw"
    """What ``stream: true`` alone means: the sound itself, as OpenAI's own clients expect it, or
    server-sent events, as vLLM-Omni reads it since its change 4679."""
    default_format: Literal["wav", "pcm", "flac", "mp3", "opus", "aac"] = "mp3"
    """``response_format`` where a request has none; OpenAI's is mp3, vLLM-Omni's wav."""
    max_input_chars: int = 4096
    """Characters of ``input``."""
    max_body_bytes: int = 16 << 20
    """Bytes of a request to speak, its reference audio included."""
    max_batch_items: int = 32
    """Texts of one ``POST /v1/audio/speech/batch``."""
    max_batch_chars: int = 32_768
    """Characters of all of them."""
    batch_slots: int = 4
    """Texts of all batches that are said at the same time; calls have the rest of the engine."""
    whisper: str | None = "auto"
    """Whisper model (folder, size or hub id) of ``POST /v1/audio/transcriptions``; ``auto``: the
    engine's (``engine.qwen3.whisper``), else one that the extra ``stt-offline`` or
    ``stt-offline-languages`` brought; None: the engine's alone."""
    max_recording_bytes: int = 25 << 20
    """Bytes of a recording that is to be written down."""
    max_recording_s: float = 600.0
    """Seconds of it, 3600 at most."""
    send_timeout_s: float = 60.0
    """A client that takes nothing for so long is cut off."""
    model_aliases: tuple[str, ...] = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
    """Names of the model besides its own; each also with a date behind it, as OpenAI has them."""

    def __post_init__(self) -> None:
        if self.stream_default not in ("raw", "sse"):
            raise ValueError(f"openai.stream_default={self.stream_default!r} must be raw or sse")
        if self.default_format not in ("wav", "pcm", "flac", "mp3", "opus", "aac"):
            raise ValueError(f"openai.default_format={self.default_format!r} is no format")
        if self.whisper == "":
            raise ValueError("openai.whisper must name a model, or be null")
        counts = ("max_input_chars", "max_body_bytes", "max_recording_bytes", *_BATCHES)
        for name in (*counts, "max_recording_s", "send_timeout_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"openai.{name}={value} must be above 0")
        if not 0.1 <= self.max_recording_s <= 3600:
            raise ValueError(
                f"openai.max_recording_s={self.max_recording_s} must be within 0.1 to 3600"
            )
        for name in _BATCHES:
            if not isinstance(getattr(self, name), int):
                raise ValueError(f"openai.{name}={getattr(self, name)} must be a whole number")
        aliases: object = self.model_aliases
        if isinstance(aliases, str) or not all(self.model_aliases):
            raise ValueError("openai.model_aliases must be a list of names")
