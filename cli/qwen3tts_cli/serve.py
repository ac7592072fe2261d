"""``mr-qwen3tts serve``: the speech server."""

from __future__ import annotations

import ipaddress
from enum import StrEnum
from typing import Annotated

import typer

from qwen3tts_cli.exits import needs
from qwen3tts_cli.output import note, notes


class EngineName(StrEnum):
    """What speaks."""

    EMBEDDED = "embedded"


def add_to(app: typer.Typer) -> None:
    """Put the subcommand into ``app``."""
    app.command(
        epilog="Examples:\n\n  mr-qwen3tts serve\n\n"
        "  mr-qwen3tts serve --host 0.0.0.0 --port 9000 --workers 4"
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
) -> None:
    """Run the [bold]speech server[/bold]; Ctrl-C lets what is being said finish, twice does not."""
    with needs("server,embedded"):
        from qwen3tts_engine.embedded.engine import EmbeddedEngine, EmbeddedSettings
        from qwen3tts_server.run import RunningServer
        from qwen3tts_server.run import serve as keep_serving
        from qwen3tts_server.settings import ServerSettings

    voice = EmbeddedEngine(EmbeddedSettings(workers=workers))
    if not is_loopback(host):
        note(f"{host} may be reached from other machines; there is no password and no encryption.")
    starting = notes().status("Starting the voice …")
    with starting:

        def ready(running: RunningServer) -> None:
            starting.stop()
            typer.echo(running.url)
            note("Ctrl-C ends it.")

        keep_serving(voice, ServerSettings(host=host, port=port), on_ready=ready)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address; a name counts as open, but for localhost."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
