"""The engine that a configuration asks for."""

from __future__ import annotations

from collections.abc import Callable

from qwen3tts_engine.base import Engine
from qwen3tts_wire.errors import EngineUnavailable

from .configuration import Configuration

Progress = Callable[[str, int, int], None]
"""What is being done, how much of it is done, of how much; called from any thread."""
EXTRAS = {"embedded": "server,embedded", "qwen3": "server,qwen3", "upstream": "server,upstream"}
"""What to install for each engine."""


def build_engine(configuration: Configuration, progress: Progress | None = None) -> Engine:
    """The engine, not started; with openings kept ready where there are any to keep.

    Raises:
        EngineUnavailable: a package that it needs is not installed.
    """
    name = configuration.engine.name
    try:
        engine = _inner(configuration, progress)
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


def _inner(configuration: Configuration, progress: Progress | None) -> Engine:
    choice = configuration.engine
    if choice.name == "qwen3":
        from qwen3tts_engine.qwen3.engine import Qwen3Engine

        assert choice.qwen3 is not None
        return Qwen3Engine(choice.qwen3, progress)
    if choice.name == "upstream":
        from qwen3tts_engine.upstream.engine import UpstreamEngine

        return UpstreamEngine(choice.upstream)
    from qwen3tts_engine.embedded.engine import EmbeddedEngine

    return EmbeddedEngine(choice.embedded)
