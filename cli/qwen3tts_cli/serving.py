"""Server in this process: logs, start messages, shutdown."""

from __future__ import annotations

import ipaddress
import logging
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from qwen3tts_cli.output.console import Stages, note
from qwen3tts_cli.output.exits import require_extra

if TYPE_CHECKING:
    from qwen3tts_engine.base import Engine, Voice
    from qwen3tts_server.configuration import Configuration
    from qwen3tts_server.run import RunningServer


log = logging.getLogger(__name__)


def write_logs(context: typer.Context, settings: Configuration, level: str | None = None) -> None:
    """Configure logging; precedence: ``level``, command line, settings."""
    from dataclasses import replace

    from qwen3tts_server.logs import configure_logs

    logging_ = settings.logging
    before = context.parent
    source = before.get_parameter_source("log_level") if before is not None else None
    if before is not None and source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT"):
        level = level or str(before.params["log_level"])
    if level is not None:
        logging_ = replace(logging_, level=level)  # type: ignore[arg-type]
    configure_logs(logging_)


def log_settings(settings: Configuration, show: bool) -> None:
    """Log the settings without secrets on request, else their hash in structured logs."""
    fields: dict[str, object] = {"hash": settings.hash()}
    if show or log.isEnabledFor(logging.DEBUG):
        fields["settings"] = settings.resolved()
        level = log.getEffectiveLevel()
    elif settings.logging.form == "json":
        level = logging.INFO
    else:
        return
    log.log(level, "settings", extra={"fields": fields})


def warn_if_exposed(settings: Configuration) -> None:
    """Warn of missing protection on public addresses."""
    server = settings.server
    if is_loopback(server.host):
        return
    missing = []
    if not server.access.has_keys:
        missing.append("no key is required")
    if server.access.tls_cert is None:
        missing.append("no encryption")
    if missing:
        problems = " and ".join(missing)
        note(f"{server.host} is reachable from other machines; {problems} (docs/operations.md).")


def engine_of(settings: Configuration, stages: Stages) -> Engine:
    from qwen3tts_engine.table import ENGINES
    from qwen3tts_server.configuration import build_engine, engine_name

    name = engine_name(settings)
    if name == "qwen3":
        stages("Loading PyTorch", 0, 1)
    with require_extra(ENGINES[name].extras):
        from qwen3tts_server import run as _run  # noqa: F401

        engine = build_engine(settings, stages)
    if name == "upstream":
        upstream = settings.engine.settings("upstream")
        note(f"Waiting up to {upstream.start_s:g} s for the speech server at {upstream.url} …")
    return engine


def serve_until_stopped(engine: Engine, settings: Configuration, stages: Stages) -> None:
    """Serve until shutdown; raises ``typer.Exit`` after a second signal."""
    from qwen3tts_server.run import serve as keep_serving

    listening = False

    def ready(running: RunningServer) -> None:
        nonlocal listening
        listening = True
        stages.stop()
        typer.echo(running.url)
        note(voice_line(engine.model, running.service.voices.voices()))
        for line in getattr(engine, "notes", ()):
            note(line)
        note("Ctrl-C stops it after finishing active speech.")

    def stopping(running: RunningServer) -> None:
        if running.service.connections:
            note("Finishing active speech; Ctrl-C again stops immediately.")

    cut = keep_serving(engine, settings.server, on_ready=ready, on_stopping=stopping)
    if cut is None:
        return
    if listening:
        raise typer.Exit(128 + cut)
    stages.stop()
    _exit_now(128 + cut)


def voice_line(model: str, voices: Sequence[Voice]) -> str:
    if not voices:
        return f"Engine: {model}; no voice yet: clients bring recordings."
    first = voices[0]
    name = "" if first.name == first.id else f" ({first.name})"
    count = f", one of {len(voices)}" if len(voices) > 1 else ""
    return f"Engine: {model}; voice: {first.id}{name}{count}."


def _exit_now(code: int) -> None:
    """Exit without interpreter shutdown, which aborts when a thread returns from native code."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def is_loopback(host: str) -> bool:
    """Return whether an address is local; of names only localhost."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
