"""Languages of a voice that the engine may not have at the moment. Pure."""

from __future__ import annotations

from qwen3tts_engine.base import Engine
from qwen3tts_wire.errors import UnknownVoice


def check_language(engine: Engine, voice_id: str, language: str) -> None:
    """Refuse a language that the voice does not speak; a voice that is missing is no reason.

    Raises:
        UnknownVoice: the language.
    """
    try:
        engine.check(voice_id, language)
        return
    except UnknownVoice as error:
        refused = error
    try:
        engine.check(voice_id, None)
    except UnknownVoice as missing:
        # The same without a language: it is the voice that the engine misses.
        if str(missing) == str(refused):
            return
    raise refused
