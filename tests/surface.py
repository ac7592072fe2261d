"""Write as JSON what a user can name: exports, commands, settings, messages, routes, metrics.

`python -m tests.surface` prints it; `python -m tests.surface --write` renews `tests/surface.json`,
which `tests/test_surface.py` compares with the code: what a user can name is not lost by accident.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import pkgutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, get_origin, get_type_hints

import click
import typer.main

KEPT = Path(__file__).with_name("surface.json")
PACKAGES = (
    "qwen3tts_codecs",
    "qwen3tts_pacer",
    "qwen3tts_text",
    "qwen3tts_wire",
    "qwen3tts_engine",
    "qwen3tts_server",
    "qwen3tts_speech",
    "qwen3tts_phone",
    "qwen3tts_agent",
    "qwen3tts_rehearsal",
)
NEED_A_HOST = ("qwen3tts_engine.qwen3.kernels",)


def modules() -> list[ModuleType]:
    """Import every module of the packages that holds settings, messages or records."""
    found = []
    for name in PACKAGES:
        try:
            package = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        found.append(package)
        for entry in pkgutil.walk_packages(package.__path__, f"{name}."):
            if entry.name.endswith("__main__") or entry.name.startswith(NEED_A_HOST):
                continue
            found.append(importlib.import_module(entry.name))
    return found


def exports() -> dict[str, list[str]]:
    """Return the names that packages export."""
    return {
        module.__name__: sorted(module.__all__)
        for module in modules()
        if hasattr(module, "__path__")
        and module.__name__ in PACKAGES
        and hasattr(module, "__all__")
    }


def _option(parameter: click.Parameter) -> list[str]:
    names = [*parameter.opts, *parameter.secondary_opts]
    return names if isinstance(parameter, click.Option) else [f"<{parameter.name}>"]


def commands() -> dict[str, list[str]]:
    """Return every command's options by its path."""
    from qwen3tts_cli.main import app

    found: dict[str, list[str]] = {}

    def visit(command: Any, path: str) -> None:
        names = [name for parameter in command.params for name in _option(parameter)]
        found[path] = sorted({*names})
        for name, child in getattr(command, "commands", {}).items():
            visit(child, f"{path} {name}")

    visit(typer.main.get_command(app), "mr-qwen3tts")
    return found


def _fields(kind: type) -> list[str]:
    return [field.name for field in dataclasses.fields(kind) if not field.name.startswith("_")]


def _dataclasses() -> list[type]:
    found: dict[tuple[str, str], type] = {}
    for module in modules():
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if dataclasses.is_dataclass(kind) and kind.__module__.partition(".")[0] in PACKAGES:
                found[kind.__module__, kind.__qualname__] = kind
    return list(found.values())


def settings() -> dict[str, list[str]]:
    """Return the keys of every settings class."""
    return {
        kind.__name__: sorted(_fields(kind))
        for kind in _dataclasses()
        if kind.__name__.endswith("Settings")
    }


def plugin_variables() -> list[str]:
    """Return the environment variables of the agent host's plugin."""
    from mr_qwen3tts import settings as plugin

    return sorted(_fields(plugin.Settings))


def _group(kind: type) -> str:
    return "softphone" if ".softphone" in kind.__module__ else kind.__module__.partition(".")[0]


def messages() -> dict[str, list[str]]:
    """Return the fields of every message that has a `type` on a WebSocket."""
    found: dict[str, list[str]] = {}
    for kind in _dataclasses():
        name = kind.__dict__.get("type")
        if isinstance(name, str) and get_origin(get_type_hints(kind).get("type")) is ClassVar:
            key = f"{_group(kind)} {name}"
            found[key] = sorted({*found.get(key, ()), *_fields(kind)})
    return found


def records() -> dict[str, list[str]]:
    """Return the fields of what is written to the logs of calls, turns and utterances."""
    return {
        kind.__name__: sorted(_fields(kind))
        for kind in _dataclasses()
        if kind.__name__ in ("CallRecord", "TurnRecord", "UtteranceRecord")
    }


def server() -> tuple[dict[str, list[str]], list[str]]:
    """Return the routes with their methods, and the names of the metrics."""
    from qwen3tts_engine.embedded.engine import EmbeddedEngine
    from qwen3tts_server.app import create_app

    app = create_app(EmbeddedEngine())
    routes = {
        str(getattr(route, "path", route)): sorted(getattr(route, "methods", None) or ["WEBSOCKET"])
        for route in app.routes
    }
    registry = app.state.service.meter.registry
    return routes, sorted({metric.name for metric in registry.collect()})


def surface() -> dict[str, Any]:
    """Return everything that a user can name."""
    routes, metrics = server()
    return {
        "exports": exports(),
        "commands": commands(),
        "settings": settings(),
        "plugin": plugin_variables(),
        "messages": messages(),
        "records": records(),
        "routes": routes,
        "metrics": metrics,
    }


if __name__ == "__main__":
    sys.path.insert(0, str(KEPT.parent / "mindroot"))  # the plugin is imported with its host only
    text = json.dumps(surface(), indent=1, sort_keys=True) + "\n"
    if "--write" in sys.argv[1:]:
        KEPT.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
