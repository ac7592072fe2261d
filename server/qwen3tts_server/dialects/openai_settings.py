"""What may be set of the OpenAI routes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from qwen3tts_settings.constraints import bounded, check_fields, one_of


@dataclass(frozen=True)
class OpenAISettings:
    """What may be set of the OpenAI routes. ValueError for what cannot be."""

    stream_default: Literal["raw", "sse"] = one_of(("raw", "sse"), default="raw")
    """What ``stream: true`` alone means: the sound itself, as OpenAI's own clients expect it, or
    server-sent events, as vLLM-Omni reads it since its change 4679."""
    default_format: Literal["wav", "pcm", "flac", "mp3", "opus", "aac"] = one_of(
        ("wav", "pcm", "flac", "mp3", "opus", "aac"), default="mp3"
    )
    """``response_format`` where a request has none; OpenAI's is mp3, vLLM-Omni's wav."""
    max_input_chars: int = bounded(1, default=4096)
    """Characters of ``input``."""
    max_body_bytes: int = bounded(1, default=16 << 20)
    """Bytes of a request to speak, its reference audio included."""
    max_batch_items: int = bounded(1, default=32)
    """Texts of one ``POST /v1/audio/speech/batch``."""
    max_batch_chars: int = bounded(1, default=32_768)
    """Characters of all of them."""
    batch_slots: int = bounded(1, default=4)
    """Texts of all batches that are said at the same time; calls have the rest of the engine."""
    whisper: str | None = "auto"
    """Whisper model (folder, size or hub id) of ``POST /v1/audio/transcriptions``; ``auto``: the
    engine's (``engine.qwen3.whisper``), else one that the extra ``stt-offline`` or
    ``stt-offline-languages`` brought; None: the engine's alone."""
    max_recording_bytes: int = bounded(1, default=25 << 20)
    """Bytes of a recording that is to be written down."""
    max_recording_s: float = bounded(0.1, 3600, default=600.0)
    """Seconds of it, 3600 at most."""
    send_timeout_s: float = bounded(above=0, default=60.0)
    """A client that takes nothing for so long is cut off."""
    model_aliases: tuple[str, ...] = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
    """Names of the model besides its own; each also with a date behind it, as OpenAI has them."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.whisper == "":
            raise ValueError("whisper must name a model, or be null")
        aliases: object = self.model_aliases
        if isinstance(aliases, str) or not all(self.model_aliases):
            raise ValueError("model_aliases must be a list of names")
