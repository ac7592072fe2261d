"""All settings of a server process from file, environment and command line; its engine."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from qwen3tts_engine.base import Engine
from qwen3tts_engine.embedded.engine import EmbeddedSettings
from qwen3tts_engine.piper.engine import PiperSettings
from qwen3tts_engine.qwen3.engine.settings import Qwen3Settings
from qwen3tts_engine.starter.settings import StarterSettings
from qwen3tts_engine.upstream.settings import UpstreamSettings
from qwen3tts_server.logs import LogSettings
from qwen3tts_server.settings import ServerSettings
from qwen3tts_settings.building import build, plain
from qwen3tts_settings.entries import (
    Entry,
    from_environment,
    from_file,
    from_overrides,
    merged,
    section,
)
from qwen3tts_wire.errors import BadRequest, EngineUnavailable

KEYS_ENV: Mapping[str, str] = {
    "QWEN3TTS_API_KEYS": "api_keys",
    "QWEN3TTS_VOICES_KEYS": "voices_keys",
    "QWEN3TTS_ADMIN_KEYS": "admin_keys",
}
"""Variables with the keys of ``server.access``, between commas or white space, by their setting."""
EXAMPLE = "configs/server.yaml"
"""A file of settings that comes along."""


@dataclass(frozen=True)
class EngineChoice:
    """Which engine speaks, and the settings of each."""

    name: Literal["auto", "piper", "embedded", "qwen3", "upstream"] = "auto"
    """``auto``: the best that is installed and speaks on any CPU (engines.py); ``piper``: voices in
    Piper's format; ``embedded``: eSpeak NG; ``qwen3``: a checkpoint; ``upstream``: another
    server."""
    piper: PiperSettings = field(default_factory=PiperSettings)
    """Of the engine piper."""
    embedded: EmbeddedSettings = field(default_factory=EmbeddedSettings)
    """Of the embedded engine."""
    qwen3: Qwen3Settings | None = None
    """Of Qwen3-TTS; it needs at least ``model``."""
    upstream: UpstreamSettings = field(default_factory=UpstreamSettings)
    """Of the other server; it needs at least ``url``."""

    def __post_init__(self) -> None:
        if self.name == "qwen3" and self.qwen3 is None:
            raise ValueError("name=qwen3 needs a checkpoint: qwen3.model, or --model")
        if self.name == "upstream" and not self.upstream.url:
            raise ValueError("name=upstream needs an address: upstream.url, or --upstream")


@dataclass(frozen=True)
class Configuration:
    """All settings of a server. ValueError for what cannot be."""

    server: ServerSettings = field(default_factory=ServerSettings)
    """The server and its protocols."""
    engine: EngineChoice = field(default_factory=EngineChoice)
    """What speaks."""
    starters: StarterSettings = field(default_factory=StarterSettings)
    """Openings that are kept ready."""
    logging: LogSettings = field(default_factory=LogSettings)
    """What is written down."""

    def resolved(self) -> dict[str, Any]:
        """All settings as JSON can hold them; of secrets only that they are set."""
        return dict(plain(self))

    def hash(self) -> str:
        """Twelve digits that tell one set of settings from another; secrets do not count."""
        text = json.dumps(self.resolved(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def load_configuration(
    path: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    overrides: Iterable[str] = (),
) -> Configuration:
    """The settings of a YAML file, over it those of the environment, over them ``a.b=c`` texts.

    ``env`` is ``os.environ`` if left out. Secrets are taken from the environment alone; settings
    may name files that hold them.

    Raises:
        BadConfiguration: a setting is unknown, of the wrong type or cannot be; it is told where.
        OSError: the file cannot be read.
    """
    env = os.environ if env is None else env
    entry = section("the defaults") if path is None else from_file(Path(path), EXAMPLE)
    entry = merged(entry, from_environment(env))
    for variable, setting in KEYS_ENV.items():
        if keys := env.get(variable, "").split():
            told = Entry(",".join(keys), f"the environment variable {variable}", text=True)
            access = Entry({"access": Entry({setting: told}, told.where)}, told.where)
            entry = merged(entry, Entry({"server": access}, told.where))
    return configuration_from(merged(entry, from_overrides(overrides)))


def configuration_from(entry: Entry) -> Configuration:
    """The settings that a section holds; raises BadConfiguration."""
    return build(Configuration, entry)


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
