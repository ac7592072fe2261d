"""``mr-qwen3tts doctor``: what works on this machine, and what to do about the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qwen3tts_cli.exits import ExitCode, run
from qwen3tts_cli.output import notes, printable, results
from qwen3tts_wire.errors import SpeechError

if TYPE_CHECKING:
    from qwen3tts_cli.checks import Check


def add_to(app: typer.Typer) -> None:
    """Put the subcommand into ``app``."""
    app.command(
        epilog="Examples:\n\n  mr-qwen3tts doctor\n\n"
        "  mr-qwen3tts doctor --server ws://10.0.0.5:8765/v1/speech --json\n\n"
        "The exit code is 0 unless a line says [bold]fail[/bold]; then it is 1."
    )(doctor)


def doctor(
    host: Annotated[str, typer.Option(help="The local address that calls would use.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="The SIP port to try.")] = 5060,
    checkpoint: Annotated[
        Path | None,
        typer.Option(envvar="MR_QWEN3TTS_CHECKPOINT", help="A model's folder to look into."),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(metavar="URL", envvar="MR_QWEN3TTS_SERVER", help="A speech server to ask."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check [bold]this machine[/bold]: packages, audio, ports, GPU, checkpoint, network."""
    from qwen3tts_cli.checks import Level

    made: list[Check] = []
    with notes().status("Looking …"):
        made.extend(all_checks(host, port, checkpoint, server))
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in made], indent=2))
    else:
        _print(made)
    if any(each.level is Level.FAIL for each in made):
        raise typer.Exit(ExitCode.FAILED)


def all_checks(
    host: str, port: int, checkpoint: Path | None, server: str | None
) -> Iterator[Check]:
    """Every check, in the order of the report."""
    from qwen3tts_cli import checks

    yield checks.python()
    yield from checks.packages()
    yield checks.engine_library()
    yield checks.cpus()
    yield checks.scheduling()
    yield checks.gpu()
    yield checks.checkpoint(checkpoint)
    yield checks.player()
    yield checks.sip_port(host, port)
    yield checks.rtp_ports(host)
    yield checks.loopback()
    yield checks.route()
    if server is not None:
        yield speech_server(server)


def speech_server(url: str) -> Check:
    """Whether the server answers, and with what."""
    from qwen3tts_cli.checks import Check, Level
    from qwen3tts_wire.client import SpeechClient

    async def ask() -> str:
        client = await SpeechClient.connect(url)
        try:
            session = client.session
            return f"{session.engine}, {len(session.voices)} voices, {client.rtt_s * 1000:.1f} ms"
        finally:
            await client.close()

    try:
        return Check("speech server", Level.OK, run(ask()))
    except SpeechError as error:
        return Check("speech server", Level.FAIL, error.message, error.remedy)


def _print(made: list[Check]) -> None:
    from rich.text import Text

    colours = {"ok": "green", "warn": "yellow", "fail": "bold red"}
    console = results()
    for each in made:
        line = Text(f"{each.level:<5}", style=colours[each.level])
        line.append(Text(f"{each.name}: {printable(each.found)}", style="default"))
        console.print(line)
        if each.remedy:
            console.print(Text(f"     → {printable(each.remedy)}", style="dim"))
