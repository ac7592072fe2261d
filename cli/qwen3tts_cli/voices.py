"""Subcommand ``voices``: voices of a server."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from qwen3tts_cli.options import common as options
from qwen3tts_cli.options.common import speech_server
from qwen3tts_cli.output.columns import columns
from qwen3tts_cli.output.console import note, printable
from qwen3tts_cli.output.exits import run
from qwen3tts_engine.table import ENGINES
from qwen3tts_wire.names import language_name, nearest, tag_of

if TYPE_CHECKING:
    from qwen3tts_wire.messages import SessionCreated, VoiceInfo


def add_to(app: typer.Typer) -> None:
    app.command(
        epilog="Examples:\n\n  mr-qwen3tts voices\n\n  mr-qwen3tts voices --language de --json"
    )(voices)


def voices(
    language: Annotated[
        str | None,
        typer.Option(
            "--language",
            "-l",
            metavar="TAG",
            help="Only this language, by its tag or its English name: en, en-GB, German.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    server: options.Server = None,
) -> None:
    """List the [bold]voices[/bold] of a server: id, name, language, sex, engine."""
    session = run(ask(server))
    found = [voice for voice in session.voices if speaks(voice, language)]
    if as_json:
        typer.echo(json.dumps([asdict(voice) for voice in found], indent=2))
    elif found:
        for line in listing(session, found, terminal_width()):
            typer.echo(line)
        if session.engine == "piper" and language is None:
            note(MORE_LANGUAGES)
    elif not session.voices:
        note("None so far: say, call and answer make one of a recording with --clone FILE.")
    if language is not None and not found:
        tags = {voice.language for voice in session.voices}
        near = nearest(language, [*tags, *map(language_name, tags)])
        hint = f" Similar: {', '.join(near)}." if near else ""
        note(f"No voice speaks {language!r}.{hint}")
        if session.engine == "piper":
            note(MORE_LANGUAGES)
        raise typer.Exit(1)


def terminal_width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


async def ask(server: str | None) -> SessionCreated:
    from qwen3tts_wire.client import SpeechClient

    async with speech_server(server) as url:
        client = await SpeechClient.connect(url)
        try:
            return client.session
        finally:
            await client.close()


def speaks(voice: VoiceInfo, language: str | None) -> bool:
    """Return whether a voice's language matches (RFC 4647, 3.3.1)."""
    if language is None:
        return True
    wanted = (tag_of(language) or language.replace("_", "-")).lower()
    own = voice.language.lower()
    return own == wanted or own.startswith(wanted + "-")


MORE_LANGUAGES = (
    "eSpeak NG speaks some 125 languages: start mr-qwen3tts serve --engine embedded, and give its"
    " address with --server."
)
HEADINGS = ("voice", "name", "language", "sex", "engine")


def engine_label(name: str) -> str:
    entry = ENGINES.get(name)
    return name if entry is None else entry.label


def shown_voice(session: SessionCreated, named: str | None) -> str:
    """Return the voice ``named``, or the first, with its engine."""
    voice = named or next((each.id for each in session.voices), "")
    return f"{voice} ({engine_label(session.engine)})".lstrip()


def listing(session: SessionCreated, found: Sequence[VoiceInfo], width: int | None) -> list[str]:
    """Return the lines of the list; ``width`` as for ``columns``."""
    engine = engine_label(session.engine)
    rows = [
        (voice.id, voice.name, language_of(voice), voice.gender or "", engine) for voice in found
    ]
    return columns([HEADINGS, *(tuple(map(printable, row)) for row in rows)], width)


def language_of(voice: VoiceInfo) -> str:
    name = language_name(voice.language)
    return name if name == voice.language else f"{voice.language} {name}"
