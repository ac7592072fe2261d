"""``mr-qwen3tts serve``: the speech server."""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qwen3tts_cli.exits import needs
from qwen3tts_cli.output import note, notes
from qwen3tts_cli.progress import Stages

if TYPE_CHECKING:
    from qwen3tts_engine.base import Engine
    from qwen3tts_server.configuration import Configuration
    from qwen3tts_server.run import RunningServer

PANEL = "Qwen3-TTS"
OPERATIONS = "Operations"

log = logging.getLogger(__name__)


class EngineName(StrEnum):
    """What speaks."""

    EMBEDDED = "embedded"
    QWEN3 = "qwen3"
    UPSTREAM = "upstream"


class DTypeName(StrEnum):
    """Number types that a model may be computed in."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


def add_to(app: typer.Typer) -> None:
    """Put the subcommand into ``app``."""
    app.command(
        epilog="Examples:\n\n  mr-qwen3tts serve\n\n"
        "  mr-qwen3tts serve --host 0.0.0.0 --port 9000 --workers 4\n\n"
        "  mr-qwen3tts serve --engine qwen3 --model Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice\n\n"
        "  mr-qwen3tts serve --engine qwen3 --model ./checkpoint --device cpu --slots 4\n\n"
        "  mr-qwen3tts serve --config configs/server.yaml --set server.port=9000\n\n"
        "  mr-qwen3tts serve --upstream ws://gpu:8091/v1/audio/speech/stream"
    )(serve)


def serve(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            envvar="MR_QWEN3TTS_CONFIG",
            help="Settings in YAML, such as configs/server.yaml; options here win over it.",
            dir_okay=False,
            rich_help_panel=OPERATIONS,
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="A.B=C",
            help="Any setting of the file, such as server.drain_timeout_s=60; may be repeated.",
            rich_help_panel=OPERATIONS,
        ),
    ] = None,
    print_config: Annotated[
        bool,
        typer.Option(
            "--print-config",
            help="Print the settings that would be used, without secrets, and exit.",
            rich_help_panel=OPERATIONS,
        ),
    ] = False,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            help="Keys that clients must have, one a line; or in QWEN3TTS_API_KEYS.",
            dir_okay=False,
            rich_help_panel=OPERATIONS,
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            help="Certificate chain (PEM): speak TLS.", dir_okay=False, rich_help_panel=OPERATIONS
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(help="Its key (PEM).", dir_okay=False, rich_help_panel=OPERATIONS),
    ] = None,
    starter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="An opening to keep ready, such as 'One moment, please.'; may be repeated.",
            rich_help_panel=OPERATIONS,
        ),
    ] = None,
    upstream: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Another server speaks: ws://… of vLLM-Omni, http://… of OpenAI's REST.",
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; 127.0.0.1 if left out.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port, 8765 if left out; 0 is any.")
    ] = None,
    engine: Annotated[
        EngineName | None, typer.Option(help="What speaks; embedded if left out.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=0, max=256, help="Processes of the embedded voice; 0 is as the processors allow."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            envvar="MR_QWEN3TTS_CHECKPOINT",
            metavar="PATH_OR_HUB_ID",
            help="The checkpoint: a folder, or an id to fetch from the hub.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="auto, cpu, cuda or cuda:N; auto if left out.", rich_help_panel=PANEL),
    ] = None,
    dtype: Annotated[
        DTypeName | None,
        typer.Option(
            metavar="TYPE",
            help="Of the model: float32, bfloat16 or float16; bfloat16 on a GPU, float32 on a CPU"
            " if left out.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    codec_dtype: Annotated[
        DTypeName | None,
        typer.Option(
            metavar="TYPE",
            help="Of the codec; float16 on a GPU, float32 on a CPU if left out.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            help="Voices that speak at once; 64 on a GPU, 16 on a CPU if left out.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    max_waiting: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            help="Clauses that may wait for a slot, 256 if left out; further ones are refused.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    positions: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            help="Longest clause, with its prompt, in frames of 80 ms; 2048 if left out.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    lead_ms: Annotated[
        float | None,
        typer.Option(
            metavar="MS",
            help="Sound made ahead of a listener, 800 if left out; then others come first.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    initial_codec_chunk_frames: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER|load",
            help="Frames in the first chunk of sound; load: fewer, the busier. As few as the"
            " deadline needs if left out.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    dry_timeout_s: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Live text that stops for so long ends what is being said of it; 2 if left out.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    unread_s: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Sound made for a client that does not read; 2 if left out.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    voice: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="What speaks where nothing is asked for.", rich_help_panel=PANEL
        ),
    ] = None,
    voice_folder: Annotated[
        Path | None,
        typer.Option(help="Where cloned voices are kept between runs.", rich_help_panel=PANEL),
    ] = None,
    voices_bytes: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES",
            help="Memory for cloned voices, 1 GiB if left out; the least recently used go.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    whisper: Annotated[
        str | None,
        typer.Option(
            metavar="PATH_OR_HUB_ID",
            help="A Whisper model that hears the words of recordings that come without.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    graphs: Annotated[
        bool | None,
        typer.Option(help="CUDA graphs; on where there is a GPU.", rich_help_panel=PANEL),
    ] = None,
    compiled: Annotated[
        bool | None,
        typer.Option(
            "--compile", help="Compile the model: minutes at the start.", rich_help_panel=PANEL
        ),
    ] = None,
) -> None:
    """Run the [bold]speech server[/bold]; Ctrl-C lets what is being said finish, twice does not;
    while it still starts, it ends at once."""
    qwen3 = {
        "model": model,
        "device": device,
        "dtype": dtype,
        "codec_dtype": codec_dtype,
        "slots": slots,
        "max_waiting": max_waiting,
        "positions": positions,
        "lead_ms": lead_ms,
        "initial_codec_chunk_frames": initial_codec_chunk_frames,
        "dry_timeout_s": dry_timeout_s,
        "unread_s": unread_s,
        "voice": voice,
        "voice_folder": voice_folder,
        "voices_bytes": voices_bytes,
        "whisper": whisper,
        "graphs": graphs,
        "compile": compiled,
    }
    if upstream is not None and engine is None:
        engine = EngineName.UPSTREAM
    given = {
        "server.host": host,
        "server.port": port,
        "server.access.api_key_file": api_key_file,
        "server.access.tls_cert": tls_cert,
        "server.access.tls_key": tls_key,
        "engine.name": engine,
        "engine.embedded.workers": workers,
        "engine.upstream.url": upstream,
        **{f"engine.qwen3.{name}": value for name, value in qwen3.items()},
    }
    elsewhere = config is not None or overrides or "QWEN3TTS__ENGINE__QWEN3__MODEL" in os.environ
    if engine is EngineName.QWEN3 and model is None and not elsewhere:
        raise typer.BadParameter(
            "the engine qwen3 needs a checkpoint: --model FOLDER, or a hub id such as"
            " Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice."
        )
    settings = _configuration(config, given, starter or [], overrides or [])
    if print_config:
        typer.echo(_printed(settings))
        return
    _configure_logs(context, settings)
    _warn_of_the_open(settings)
    with notes().status("Starting the voice …") as status:
        stages = Stages(status)
        speaking = _engine(settings, stages)
        _keep_serving(speaking, settings, stages)


def _configuration(
    file: Path | None, given: Mapping[str, object], starters: list[str], overrides: list[str]
) -> Configuration:
    """The file, under the environment, under the options."""
    with needs("server"):
        from qwen3tts_server.configuration import load_configuration

    # A checkpoint in the environment alone does not choose the engine.
    options = [f"{name}={_text(value)}" for name, value in given.items() if value is not None]
    if starters:
        options.append(f"starters.phrases={json.dumps(starters)}")
    return load_configuration(file, None, [*options, *overrides])


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _printed(settings: Configuration) -> str:
    import yaml

    text = yaml.safe_dump(settings.resolved(), sort_keys=False, allow_unicode=True)
    return f"# {settings.hash()}\n{text}".rstrip()


def _configure_logs(context: typer.Context, settings: Configuration) -> None:
    """As the settings say; a level on the command line wins."""
    from dataclasses import replace

    from qwen3tts_server.logs import configure_logs

    logging_ = settings.logging
    before = context.parent
    source = before.get_parameter_source("log_level") if before is not None else None
    if before is not None and source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT"):
        logging_ = replace(logging_, level=str(before.params["log_level"]))  # type: ignore[arg-type]
    configure_logs(logging_)
    # Without secrets, and so that two servers can be told to be alike.
    told = {"hash": settings.hash(), "settings": settings.resolved()}
    log.info("settings", extra={"fields": told})


def _warn_of_the_open(settings: Configuration) -> None:
    server = settings.server
    if is_loopback(server.host):
        return
    missing = []
    if not server.access.api_keys and server.access.api_key_file is None:
        missing.append("no key is asked for")
    if server.access.tls_cert is None:
        missing.append("nothing is encrypted")
    if missing:
        told = " and ".join(missing)
        note(f"{server.host} may be reached from other machines; {told} (docs/operations.md).")


def _engine(settings: Configuration, stages: Stages) -> Engine:
    from qwen3tts_server.engines import EXTRAS, build_engine

    name = settings.engine.name
    if name == "qwen3":
        stages("Loading PyTorch", 0, 1)
    with needs(EXTRAS[name]):
        from qwen3tts_server import run as _run  # noqa: F401

        return build_engine(settings, stages)


def _keep_serving(engine: Engine, settings: Configuration, stages: Stages) -> None:
    from qwen3tts_server.run import serve as keep_serving

    def ready(running: RunningServer) -> None:
        stages.stop()
        typer.echo(running.url)
        for line in (engine.model, *getattr(engine, "notes", ())):
            note(line)
        note("Ctrl-C ends it.")

    def stopping(running: RunningServer) -> None:
        if running.service.connections:
            note("What is being said is finished; Ctrl-C again ends it at once.")

    early = keep_serving(engine, settings.server, on_ready=ready, on_stopping=stopping)
    if early is not None:
        stages.stop()
        _exit_now(128 + early)


def _exit_now(code: int) -> None:
    """Exit while a thread may be deep in a library that loads a model: the interpreter's own end
    aborts where such a thread comes back."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address; a name counts as open, but for localhost."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
