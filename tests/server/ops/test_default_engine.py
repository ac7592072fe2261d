"""The engine that speaks where none is named."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_engine.piper.engine import PiperEngine, PiperSettings, found_voices
from qwen3tts_server.configuration import Configuration, EngineSection, build_engine, default_engine
from qwen3tts_wire.errors import EngineUnavailable
from tests.engine.piper.tiny_vits import write_voice

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
    monkeypatch.setattr("qwen3tts_engine.piper.voice_files.installed_voices", list)
    assert default_engine().name == "embedded"


def test_of_an_installed_voice_that_is_damaged_it_is_told_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package is laid out as pip leaves it, alone on the path."""
    write_voice(tmp_path).config.write_text("{")
    info = tmp_path / "my_voice-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-voice\nVersion: 1.0\n")
    (info / "RECORD").write_text("en_US-tiny-low.onnx,,\nen_US-tiny-low.onnx.json,,\n")
    alone = list(importlib.metadata.distributions(path=[str(tmp_path)]))
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: alone)
    chosen = default_engine()
    assert chosen.name == "embedded"
    assert chosen.sentence == (
        "The voice is eSpeak NG's. Voice en_US-tiny-low: The voice's settings cannot be used: they"
        " are not JSON. Install it again: pip install --force-reinstall --no-deps my-voice."
    )
    with pytest.raises(EngineUnavailable, match=r"en_US-tiny-low: .* not JSON") as caught:
        found_voices(PiperSettings())
    assert caught.value.remedy.endswith("--no-deps my-voice")


def test_an_engine_that_is_named_speaks_whatever_is_installed() -> None:
    named = Configuration(engine=EngineSection(name="embedded"))
    assert isinstance(build_engine(named), EmbeddedEngine)
