"""What a server says of itself, for tests."""

from __future__ import annotations

from collections.abc import Sequence

from qwen3tts_wire.formats import FORMATS
from qwen3tts_wire.messages import PROTOCOL, Limits, SessionCreated, VoiceInfo


def session_of(voices: Sequence[VoiceInfo], engine: str = "embedded") -> SessionCreated:
    """A session with these voices."""
    return SessionCreated(
        protocol=PROTOCOL,
        engine=engine,
        model="a model",
        voices=tuple(voices),
        formats=FORMATS,
        limits=Limits(),
        modes=("clause",),
        features=(),
    )
