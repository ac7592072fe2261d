"""What may be set of the runvnc protocol."""

from __future__ import annotations

from dataclasses import dataclass

from qwen3tts_settings.constraints import bounded, check_fields


@dataclass(frozen=True)
class RunvncSettings:
    """What may be set of the runvnc protocol. ValueError for what cannot be."""

    max_init_bytes: int = bounded(1, default=12 * 1024 * 1024)
    """Bytes of ``init`` with its reference audio."""
    max_message_chars: int = bounded(1, default=256 * 1024)
    """Characters of any other message."""
    max_waiting: int = bounded(1, default=64)
    """Messages that may wait while a voice is being loaded."""
    generate_frame_ms: float = bounded(0, default=10.0)
    """Time from one frame of ``generate`` to the next, as clients know it (a frame is 20 ms of
    sound); 0: as fast as it is made. ``generate_stream`` and ``text`` never wait."""
    default_voice: str | None = None
    """What speaks before any ``init``; None: ``init`` or ``voice_id`` is required."""
    xvector_fallback: bool = True
    """Whether ``auto_transcribe`` without a transcriber takes only the colour of the voice, and
    ``ready`` says so; else it is an error."""
    idle_s: float = bounded(0, default=3600.0)
    """Time without a message while nothing is said; then the connection is closed. 0 is any."""

    def __post_init__(self) -> None:
        check_fields(self)
