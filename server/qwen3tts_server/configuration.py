"""Settings of a server process from file, environment and command line; its engine."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Any, Literal

from qwen3tts_engine.base import Engine
from qwen3tts_engine.starter.engine import StarterEngine, StarterSettings
from qwen3tts_engine.table import ENGINES, EngineEntry
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
"""Variables of ``server.access`` keys (comma or white space) by setting."""
EXAMPLE = "configs/server.yaml"
"""Packaged example file."""


@dataclass(frozen=True)
class EngineChoice:
    """Choice of engine; ``EngineSection`` adds each engine's settings."""

    name: str = field(default="auto", metadata={"kind": Literal["auto", *ENGINES]})
    """Name in ``qwen3tts_engine.table.ENGINES``, or ``auto``: the best that is installed and speaks
    on any CPU."""

    def __post_init__(self) -> None:
        if self.name == "auto":
            return
        entry = ENGINES.get(self.name)
        if entry is None:
            raise ValueError(f"name={self.name} must be one of {', '.join(('auto', *ENGINES))}")
        if entry.required and not getattr(self.settings(self.name), entry.required, None):
            raise ValueError(f"name={self.name} needs {entry.requirement}")

    def settings(self, name: str) -> Any:
        """Return an engine's settings; None: it needs some and has none."""
        return getattr(self, name, None)


def _engine_field(name: str, entry: EngineEntry) -> tuple[str, Any, Any]:
    kind = entry.settings_class()
    if all(
        each.default is not MISSING or each.default_factory is not MISSING for each in fields(kind)
    ):
        return name, kind, field(default_factory=kind)
    return name, kind | None, None


EngineSection = make_dataclass(
    "EngineSection",
    [_engine_field(name, entry) for name, entry in ENGINES.items()],
    bases=(EngineChoice,),
    frozen=True,
    namespace={"__module__": __name__},
)
"""Section ``engine``: the choice, and a section an engine."""


@dataclass(frozen=True)
class Configuration:
    """All settings of a server process. Raises ValueError for an invalid one."""

    server: ServerSettings = field(default_factory=ServerSettings)
    """The server and its protocols."""
    engine: EngineChoice = field(
        default_factory=lambda: EngineSection(), metadata={"kind": EngineSection}
    )
    """Engine and its settings."""
    starters: StarterSettings = field(default_factory=StarterSettings)
    """Openings that are kept ready."""
    logging: LogSettings = field(default_factory=LogSettings)
    """Logs."""

    def resolved(self) -> dict[str, Any]:
        return dict(plain(self))

    def hash(self) -> str:
        text = json.dumps(self.resolved(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def load_configuration(
    path: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    overrides: Iterable[str] = (),
) -> Configuration:
    """Merge a YAML file, the environment and ``a.b=c`` overrides, the later first.

    Secrets come from the environment alone, or from files that settings name.

    Raises:
        BadConfiguration: a setting is unknown, mistyped or invalid.
        OSError: the file cannot be read.
    """
    env = os.environ if env is None else env
    entry = section("the defaults") if path is None else from_file(Path(path), EXAMPLE)
    entry = merged(entry, from_environment(env))
    for variable, setting in KEYS_ENV.items():
        if keys := env.get(variable, "").split():
            given = Entry(",".join(keys), f"the environment variable {variable}", text=True)
            access = Entry({"access": Entry({setting: given}, given.where)}, given.where)
            entry = merged(entry, Entry({"server": access}, given.where))
    return configuration_from(merged(entry, from_overrides(overrides)))


def configuration_from(entry: Entry) -> Configuration:
    return build(Configuration, entry)


Progress = Callable[[str, int, int], None]
"""Progress callback: step, done, total; called from any thread."""
ESPEAK = "The voice is eSpeak NG's; a natural one: pip install 'mr_qwen3tts[voice]'."
NATURAL = ("onnxruntime", "onnx", "espeakng_loader")
"""Imports of the engine piper."""


@dataclass(frozen=True, slots=True)
class DefaultEngine:
    name: Literal["piper", "embedded"]
    sentence: str
    """Description for people."""


def default_engine() -> DefaultEngine:
    """Return the best installed CPU engine (``engine.name: auto``)."""
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
    """Return the engine, not started, with openings if configured.

    Raises:
        EngineUnavailable: a package is not installed.
    """
    name = engine_name(configuration)
    try:
        engine = _inner(name, configuration, progress)
        starters = configuration.starters
        if starters.wanted:
            engine = StarterEngine(engine, starters, progress=progress)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("qwen3tts_"):
            raise
        raise EngineUnavailable(
            f"The engine {name} needs the Python package {error.name!r}, which is not installed.",
            remedy=f"Install it with: pip install 'mr_qwen3tts[{ENGINES[name].extras}]'",
        ) from error
    return engine


def engine_name(configuration: Configuration) -> str:
    name = configuration.engine.name
    return default_engine().name if name == "auto" else name


def _inner(name: str, configuration: Configuration, progress: Progress | None) -> Engine:
    entry = ENGINES[name]
    given = (progress,) if entry.reports_progress else ()
    engine: Engine = entry.engine_class()(configuration.engine.settings(name), *given)
    return engine
