"""The engine that a configuration asks for."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from qwen3tts_engine.base import Engine
from qwen3tts_server.configuration import Configuration
from qwen3tts_wire.errors import BadRequest, EngineUnavailable

Progress = Callable[[str, int, int], None]
"""What is being done, how much of it is done, of how much; called from any thread."""
EXTRAS = {
    "piper": "server,voice",
    "embedded": "server,embedded",
    "qwen3": "server,qwen3",
    "upstream": "server,upstream",
}
"""What to install for each engine."""
ESPEAK = "The voice is eSpeak NG's; a natural one: pip install 'mr_qwen3tts[voice]'."
NATURAL = ("onnxruntime", "onnx", "espeakng_loader")
"""What the engine piper imports, besides a voice."""


@dataclass(frozen=True, slots=True)
class DefaultEngine:
    """The engine that speaks where none is named."""

    name: Literal["piper", "embedded"]
    """For ``engine.name``."""
    sentence: str
    """For people: which voice that is."""


def default_engine() -> DefaultEngine:
    """The best engine that is installed and speaks on any CPU; ``engine.name: auto`` means it."""
    if all(importlib.util.find_spec(package) for package in NATURAL):
        from qwen3tts_engine.piper.voice_files import installed_voices

        damaged: list[BadRequest] = []
        if voices := installed_voices(damaged):
            voice = voices[0].files.id
            return DefaultEngine("piper", f"The voice is {voice} (Piper), on the CPU.")
        if damaged:
            return DefaultEngine("embedded", f"The voice is eSpeak NG's. {damaged[0]}.")
    return DefaultEngine("embedded", ESPEAK)


def build_engine(configuration: Configuration, progress: Progress | None = None) -> Engine:
    """The engine, not started; with openings kept ready where there are any to keep.

    Raises:
        EngineUnavailable: a package that it needs is not installed.
    """
    name = engine_name(configuration)
    try:
        engine = _inner(name, configuration, progress)
        starters = configuration.starters
        if starters.wanted:
            from qwen3tts_engine.starter.engine import StarterEngine

            engine = StarterEngine(engine, starters, progress=progress)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("qwen3tts_"):
            raise
        raise EngineUnavailable(
            f"The engine {name} needs the Python package {error.name!r}, which is not installed.",
            remedy=f"Install it with: pip install 'mr_qwen3tts[{EXTRAS[name]}]'",
        ) from error
    return engine


def engine_name(configuration: Configuration) -> str:
    """``engine.name``, with the default in the place of ``auto``."""
    name = configuration.engine.name
    return default_engine().name if name == "auto" else name


def _inner(name: str, configuration: Configuration, progress: Progress | None) -> Engine:
    choice = configuration.engine
    if name == "qwen3":
        from qwen3tts_engine.qwen3.engine.engine import Qwen3Engine

        assert choice.qwen3 is not None
        return Qwen3Engine(choice.qwen3, progress)
    if name == "piper":
        from qwen3tts_engine.piper.engine import PiperEngine

        return PiperEngine(choice.piper)
    if name == "upstream":
        from qwen3tts_engine.upstream.engine import UpstreamEngine

        return UpstreamEngine(choice.upstream)
    from qwen3tts_engine.embedded.engine import EmbeddedEngine

    return EmbeddedEngine(choice.embedded)
