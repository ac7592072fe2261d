"""``mr-qwen3tts``: subcommands and error messages."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Annotated

import typer

from qwen3tts_cli import answer, call, chat, rehearse, say, serve, softphone, voices
from qwen3tts_cli.doctor import command as doctor
from qwen3tts_cli.latency import command as latency
from qwen3tts_cli.output.console import LogLevel, configure_logging, print_error, print_speech_error
from qwen3tts_cli.output.exits import ExitCode, exit_code
from qwen3tts_cli.output.help import CommandList, with_pages
from qwen3tts_wire.errors import SpeechError

COMMANDS: tuple[ModuleType, ...] = (
    serve,
    say,
    call,
    answer,
    chat,
    softphone,
    rehearse,
    latency,
    voices,
    doctor,
)
"""Modules in the order of the help page."""

app = typer.Typer(
    name="mr-qwen3tts",
    cls=CommandList,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Speech for agents on the telephone: text goes in while it is being written, a voice"
    " comes out on a real SIP call.",
    epilog="[bold]Exit codes[/bold]: 0 done · 1 failed on the way · 2 wrong command line, address,"
    " voice or text · 3 not there (server, phone, model, package, port) · 4 refused by the other"
    " end · 130 Ctrl-C · 143 terminated. Begin with [bold]mr-qwen3tts doctor[/bold].",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"mr-qwen3tts {version('mr_qwen3tts')}")
        except PackageNotFoundError:
            typer.echo("mr-qwen3tts (not installed)")
        raise typer.Exit


@app.callback()
def options(
    log_level: Annotated[
        LogLevel,
        typer.Option(help="Log level on standard error; callers' speech is never logged."),
    ] = LogLevel.WARNING,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show and exit."),
    ] = False,
) -> None:
    """Options before the subcommand."""
    configure_logging(log_level)


def add_commands(app: typer.Typer, commands: Iterable[ModuleType] = COMMANDS) -> None:
    """Register these modules: ``add_to(app)``, optional ``FIRST_OPTIONS``."""
    for module in commands:
        module.add_to(app)
    with_pages(app)


add_commands(app)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; return its exit code and print errors."""
    try:
        app(args=None if arguments is None else list(arguments), prog_name="mr-qwen3tts")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except SpeechError as error:
        print_speech_error(error)
        return exit_code(error)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is content; nothing more can be said to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    except OSError as error:
        reason = error.strerror or str(error)
        where = f"{error.filename}: " if error.filename else ""
        print_error(f"{where}{reason}")
        return ExitCode.FAILED
    return ExitCode.OK


def main() -> None:
    sys.exit(run())


if __name__ == "__main__":
    main()
