"""Subcommand ``serve``: the speech server."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qwen3tts_cli.options.common import option_groups
from qwen3tts_cli.options.qwen3 import Qwen3Options
from qwen3tts_cli.output.console import LogLevel, Stages, notes
from qwen3tts_cli.output.exits import require_extra
from qwen3tts_cli.serving import (
    engine_of,
    log_settings,
    serve_until_stopped,
    warn_if_exposed,
    write_logs,
)
from qwen3tts_engine.table import ENGINES

if TYPE_CHECKING:
    from qwen3tts_server.configuration import Configuration

OPERATIONS = "Operations"
ENGINE_NAMES = ("auto", *ENGINES)


FIRST_OPTIONS = (
    "--host",
    "--port",
    "--engine",
    "--model",
    "--device",
    "--upstream",
    "--config",
    "--api-key-file",
    "--tls-cert",
    "--tls-key",
    "--starter",
    "--show-settings",
)


def _known_engine(name: str | None) -> str | None:
    if name is not None and name not in ENGINE_NAMES:
        names = ", ".join(map(repr, ENGINE_NAMES))
        raise typer.BadParameter(f"{name!r} is not one of {names}.")
    return name


@dataclass(frozen=True, slots=True)
class RunOptions:
    config: Annotated[
        Path | None,
        typer.Option(
            envvar="MR_QWEN3TTS_CONFIG",
            help="Settings in YAML, such as configs/server.yaml; options override it.",
            dir_okay=False,
            rich_help_panel=OPERATIONS,
        ),
    ] = None
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="A.B=C",
            help="Any setting of the file, such as server.drain_timeout_s=60; may be repeated.",
            rich_help_panel=OPERATIONS,
        ),
    ] = None
    print_config: Annotated[
        bool,
        typer.Option(
            "--print-config",
            help="Print the effective settings, without secrets, and exit.",
            rich_help_panel=OPERATIONS,
        ),
    ] = False
    show_settings: Annotated[
        bool,
        typer.Option(
            "--show-settings",
            help="Log all settings at start-up, without secrets; so does --log-level debug.",
            rich_help_panel=OPERATIONS,
        ),
    ] = False
    log_level: Annotated[
        LogLevel | None,
        typer.Option(
            help="Log level on standard error; default: logging.level.",
            show_default=False,
            rich_help_panel=OPERATIONS,
        ),
    ] = None
    starter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="Opening phrase to prepare, such as 'One moment, please.'; may be repeated.",
            rich_help_panel=OPERATIONS,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Listen address; default 127.0.0.1."),
    ] = None
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port; default 8765, 0 = any.")
    ] = None
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            help=(
                "File of client keys, one per line, each followed by its role (voices,"
                " admin) if not speak; or in QWEN3TTS_API_KEYS."
            ),
            dir_okay=False,
            rich_help_panel=OPERATIONS,
        ),
    ] = None
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            help="Certificate chain (PEM) for TLS.", dir_okay=False, rich_help_panel=OPERATIONS
        ),
    ] = None
    tls_key: Annotated[
        Path | None,
        typer.Option(help="Its private key (PEM).", dir_okay=False, rich_help_panel=OPERATIONS),
    ] = None


@dataclass(frozen=True, slots=True)
class EngineOptions:
    engine: Annotated[
        str | None,
        typer.Option(
            metavar=f"[{'|'.join(ENGINE_NAMES)}]",
            callback=_known_engine,
            help="Engine; default: the best installed one for any CPU.",
        ),
    ] = None
    workers: Annotated[
        int | None,
        typer.Option(
            min=0, max=256, help="Worker processes of a CPU voice; 0 = by the number of CPUs."
        ),
    ] = None
    upstream: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Upstream server: ws://… of vLLM-Omni, http://… of OpenAI's REST.",
        ),
    ] = None
    voice: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Default voice, for any engine."),
    ] = None
    whisper: Annotated[
        str | None,
        typer.Option(
            metavar="PATH_OR_HUB_ID",
            help=(
                "Whisper model for POST /v1/audio/transcriptions, and with the engine"
                " qwen3 for voice recordings without a transcript."
            ),
        ),
    ] = None


def add_to(app: typer.Typer) -> None:
    app.command(
        epilog="Examples:\n\n  mr-qwen3tts serve\n\n"
        "  mr-qwen3tts serve --host 0.0.0.0 --port 9000 --workers 4\n\n"
        "  mr-qwen3tts serve --engine qwen3 --model Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice\n\n"
        "  mr-qwen3tts serve --engine qwen3 --model ./checkpoint --device cpu --slots 4\n\n"
        "  mr-qwen3tts serve --config configs/server.yaml --set server.port=9000\n\n"
        "  mr-qwen3tts serve --upstream ws://gpu:8091/v1/audio/speech/stream"
    )(
        option_groups(
            run=RunOptions, listener=ListenerOptions, engine=EngineOptions, qwen3=Qwen3Options
        )(serve)
    )


def serve(
    context: typer.Context,
    run: RunOptions,
    listener: ListenerOptions,
    engine: EngineOptions,
    qwen3: Qwen3Options,
) -> None:
    """Run the [bold]speech server[/bold] until Ctrl-C or SIGTERM.

    Active speech is finished then, and the exit code is 0. A second signal, or one during
    start-up, exits immediately: 130 after Ctrl-C, 143 after SIGTERM.
    """
    name = engine.engine
    if engine.upstream is not None and name is None:
        name = "upstream"
    given = {
        "server.host": listener.host,
        "server.port": listener.port,
        "server.access.api_key_file": listener.api_key_file,
        "server.access.tls_cert": listener.tls_cert,
        "server.access.tls_key": listener.tls_key,
        "engine.name": name,
        "engine.embedded.workers": engine.workers,
        "engine.piper.workers": engine.workers,
        "engine.upstream.url": engine.upstream,
    }
    for field in fields(qwen3):
        setting = field.name.removesuffix("d") if field.name == "compiled" else field.name
        given[f"engine.qwen3.{setting}"] = getattr(qwen3, field.name)
    elsewhere = (
        run.config is not None or run.overrides or "QWEN3TTS__ENGINE__QWEN3__MODEL" in os.environ
    )
    if name == "qwen3" and qwen3.model is None and not elsewhere:
        raise typer.BadParameter(
            "the engine qwen3 needs a checkpoint: --model FOLDER, or a hub id such as"
            " Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice."
        )
    settings = _configuration(run, given)
    if engine.voice is not None or engine.whisper is not None:
        from qwen3tts_server.configuration import engine_name

        name = engine_name(settings)
        given[f"engine.{name}.voice"] = engine.voice
        # The engine qwen3 hears the recordings of voices with it, too.
        given["engine.qwen3.whisper" if name == "qwen3" else "server.openai.whisper"] = (
            engine.whisper
        )
        settings = _configuration(run, given)
    if run.print_config:
        typer.echo(_printed(settings))
        return
    write_logs(context, settings, run.log_level)
    log_settings(settings, run.show_settings)
    warn_if_exposed(settings)
    with notes().status("Starting the voice …") as status:
        stages = Stages(status)
        speaking = engine_of(settings, stages)
        serve_until_stopped(speaking, settings, stages)


def _configuration(run: RunOptions, given: Mapping[str, object]) -> Configuration:
    with require_extra("server"):
        from qwen3tts_server.configuration import load_configuration

    # A checkpoint in the environment alone does not choose the engine.
    options = [f"{name}={_text(value)}" for name, value in given.items() if value is not None]
    if run.starter:
        options.append(f"starters.phrases={json.dumps(run.starter)}")
    return load_configuration(run.config, None, [*options, *(run.overrides or ())])


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _printed(settings: Configuration) -> str:
    import yaml

    text = yaml.safe_dump(settings.resolved(), sort_keys=False, allow_unicode=True)
    return f"# {settings.hash()}\n{text}".rstrip()
