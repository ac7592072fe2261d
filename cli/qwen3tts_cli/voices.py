"""``mr-qwen3tts voices``: the voices of a server."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from qwen3tts_cli import options
from qwen3tts_cli.exits import run
from qwen3tts_cli.output import note, printable, results
from qwen3tts_cli.speech import speech_server

if TYPE_CHECKING:
    from rich.table import Table

    from qwen3tts_wire.messages import SessionCreated, VoiceInfo


def add_to(app: typer.Typer) -> None:
    """Put the subcommand into ``app``."""
    app.command(
        epilog="Examples:\n\n  mr-qwen3tts voices\n\n  mr-qwen3tts voices --language de --json"
    )(voices)


def voices(
    language: Annotated[
        str | None,
        typer.Option(
            "--language", "-l", metavar="TAG", help="Only this language, such as en or en-GB."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    server: options.Server = None,
) -> None:
    """List the [bold]voices[/bold] that can be asked for."""
    session = run(ask(server))
    found = [voice for voice in session.voices if speaks(voice, language)]
    if as_json:
        typer.echo(json.dumps([asdict(voice) for voice in found], indent=2))
    else:
        results().print(table(session, found))
        if not session.voices:
            note("None so far: say, call and answer make one of a recording with --clone FILE.")
    if language is not None and not found:
        raise typer.Exit(1)


async def ask(server: str | None) -> SessionCreated:
    """What the server says of itself."""
    from qwen3tts_wire.client import SpeechClient

    async with speech_server(server) as url:
        client = await SpeechClient.connect(url)
        try:
            return client.session
        finally:
            await client.close()


def speaks(voice: VoiceInfo, language: str | None) -> bool:
    """Whether a voice's language is the one asked for, or a kind of it (RFC 4647, 3.3.1)."""
    if language is None:
        return True
    own, wanted = voice.language.lower(), language.lower()
    return own == wanted or own.startswith(wanted + "-")


def table(session: SessionCreated, found: list[VoiceInfo]) -> Table:
    """The voices for people."""
    from rich.table import Table

    shown = Table(title=Text(printable(f"{session.engine} ({session.model})")))
    for heading in ("voice", "name", "language", "gender", "description"):
        shown.add_column(heading)
    for voice in found:
        cells = (voice.id, voice.name, voice.language, voice.gender or "", voice.description)
        shown.add_row(*(Text(printable(cell)) for cell in cells))
    return shown
