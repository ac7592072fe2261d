"""Conversation options of ``doctor``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from qwen3tts_cli.calls.text import KEY_ENV

PANEL = "Conversation"
NONE = "none"
"""Recogniser name that disables the conversation check unless --llm is given."""


@dataclass(frozen=True, slots=True)
class ConversationOptions:
    stt: Annotated[
        str | None,
        typer.Option(
            "--stt",
            metavar="NAME",
            help=(
                "Recogniser of the conversation check, as for call and answer; none: no"
                " check. Default: an installed Whisper model."
            ),
            rich_help_panel=PANEL,
        ),
    ] = None
    llm: Annotated[
        str | None,
        typer.Option(
            "--llm",
            metavar="URL",
            help=(
                "Language model to check, base address of an OpenAI-compatible endpoint:"
                " one token, then a reply of at most 64."
            ),
            rich_help_panel=PANEL,
        ),
    ] = None
    model: Annotated[
        str,
        typer.Option("--model", metavar="NAME", help="Its name.", rich_help_panel=PANEL),
    ] = "default"
    key_env: Annotated[
        str,
        typer.Option(
            "--key-env",
            metavar="VARIABLE",
            help="Environment variable that holds its key.",
            rich_help_panel=PANEL,
        ),
    ] = KEY_ENV
    voice: Annotated[
        str | None,
        typer.Option("--voice", "-v", metavar="ID", help="The voice.", rich_help_panel=PANEL),
    ] = None
    language: Annotated[
        str | None,
        typer.Option(
            "--language",
            "-l",
            metavar="TAG",
            help="Language of voice and callers, such as en-GB or de.",
            rich_help_panel=PANEL,
        ),
    ] = None
    pause_ms: Annotated[
        int,
        typer.Option(
            "--pause-ms",
            min=100,
            max=5000,
            help="The pause that ends a caller's turn.",
            rich_help_panel=PANEL,
        ),
    ] = 600
    smart_turn: Annotated[
        str | None,
        typer.Option(
            "--smart-turn",
            metavar="FILE",
            help="Turn detector to check, as for call and answer.",
            rich_help_panel=PANEL,
        ),
    ] = None

    def check(self) -> None:
        """Refuse --llm options without it; raises ``typer.BadParameter``."""
        if self.llm is None and (self.model != "default" or self.key_env != KEY_ENV):
            raise typer.BadParameter("--model and --key-env belong to --llm URL.")

    @property
    def named(self) -> bool:
        others = self.llm is not None or self.smart_turn is not None
        return self.stt not in (None, NONE) or others

    @property
    def left_out(self) -> bool:
        return self.stt == NONE and self.llm is None and self.smart_turn is None
