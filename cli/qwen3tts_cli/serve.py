"""``mr-qwen3tts serve``: the speech server."""

from __future__ import annotations

import ipaddress
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
    from qwen3tts_server.run import RunningServer

PANEL = "Qwen3-TTS"


class EngineName(StrEnum):
    """What speaks."""

    EMBEDDED = "embedded"
    QWEN3 = "qwen3"


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
        "  mr-qwen3tts serve --engine qwen3 --model ./checkpoint --device cpu --slots 4"
    )(serve)


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 is any.")] = 8765,
    engine: Annotated[EngineName, typer.Option(help="What speaks.")] = EngineName.EMBEDDED,
    workers: Annotated[
        int,
        typer.Option(
            min=0, max=256, help="Processes of the embedded voice; 0 is as the processors allow."
        ),
    ] = 0,
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
        str,
        typer.Option(help="auto, cpu, cuda or cuda:N.", rich_help_panel=PANEL),
    ] = "auto",
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
        bool,
        typer.Option(
            "--compile", help="Compile the model: minutes at the start.", rich_help_panel=PANEL
        ),
    ] = False,
) -> None:
    """Run the [bold]speech server[/bold]; Ctrl-C lets what is being said finish, twice does not;
    while it still starts, it ends at once."""
    if not is_loopback(host):
        note(f"{host} may be reached from other machines; there is no password and no encryption.")
    with notes().status("Starting the voice …") as status:
        stages = Stages(status)
        if engine is EngineName.EMBEDDED:
            speaking = _embedded(workers)
        else:
            if model is None:
                raise typer.BadParameter(
                    "the engine qwen3 needs a checkpoint: --model FOLDER, or a hub id such as"
                    " Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice."
                )
            values = {
                "model": model,
                "device": device,
                "dtype": None if dtype is None else dtype.value,
                "codec_dtype": None if codec_dtype is None else codec_dtype.value,
                "slots": slots,
                "max_waiting": max_waiting,
                "positions": positions,
                "lead_ms": lead_ms,
                "initial_codec_chunk_frames": _number_or_word(initial_codec_chunk_frames),
                "dry_timeout_s": dry_timeout_s,
                "unread_s": unread_s,
                "voice": voice,
                "voice_folder": voice_folder,
                "voices_bytes": voices_bytes,
                "whisper": whisper,
                "graphs": graphs,
                "compile": compiled,
            }
            given = {name: value for name, value in values.items() if value is not None}
            speaking = _qwen3(given, stages)
        _keep_serving(speaking, host, port, stages)


def _embedded(workers: int) -> Engine:
    with needs("server,embedded"):
        from qwen3tts_engine.embedded.engine import EmbeddedEngine, EmbeddedSettings
        from qwen3tts_server import run as _run  # noqa: F401

    return EmbeddedEngine(EmbeddedSettings(workers=workers))


def _number_or_word(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isdecimal() else text


def _qwen3(given: Mapping[str, object], stages: Stages) -> Engine:
    from qwen3tts_engine.qwen3.settings import Qwen3Settings

    try:
        settings = Qwen3Settings(**given)  # type: ignore[arg-type]
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from None
    stages("Loading PyTorch", 0, 1)
    with needs("server,qwen3"):
        from qwen3tts_engine.qwen3.engine import Qwen3Engine
        from qwen3tts_server import run as _run  # noqa: F401

    return Qwen3Engine(settings, stages)


def _keep_serving(engine: Engine, host: str, port: int, stages: Stages) -> None:
    from qwen3tts_server.run import serve as keep_serving
    from qwen3tts_server.settings import ServerSettings

    def ready(running: RunningServer) -> None:
        stages.stop()
        typer.echo(running.url)
        for line in (engine.model, *getattr(engine, "notes", ())):
            note(line)
        note("Ctrl-C ends it.")

    def stopping(running: RunningServer) -> None:
        if running.service.connections:
            note("What is being said is finished; Ctrl-C again ends it at once.")

    settings = ServerSettings(host=host, port=port)
    early = keep_serving(engine, settings, on_ready=ready, on_stopping=stopping)
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
