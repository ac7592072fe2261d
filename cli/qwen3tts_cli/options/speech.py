"""Speech options of ``say``, ``call`` and ``answer``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qwen3tts_cli.output.console import note

if TYPE_CHECKING:
    from qwen3tts_wire.client import SpeechClient

PANEL = "Voice"
OPTION_NAMES = {"sampling": "temperature"}
"""Option names that differ from ``context.open`` fields."""


class Mode(StrEnum):
    AUTO = "auto"
    CLAUSE = "clause"
    LIVE = "live"
    WHOLE = "whole"
    WHOLE_STREAMING = "whole_streaming"


@dataclass(frozen=True, slots=True)
class SpeechOptions:
    """Speech options; None: the server's default."""

    voice: Annotated[
        str | None,
        typer.Option(
            "--voice",
            "-v",
            metavar="ID",
            help="A voice; [bold]mr-qwen3tts voices[/bold] lists them.",
            rich_help_panel=PANEL,
        ),
    ] = None
    language: Annotated[
        str | None,
        typer.Option(
            "--language",
            "-l",
            metavar="TAG",
            help="Language of the text and of callers, such as en-GB or de.",
            rich_help_panel=PANEL,
        ),
    ] = None
    speed: Annotated[
        float,
        typer.Option(min=0.5, max=2.5, help="Speech rate factor.", rich_help_panel=PANEL),
    ] = 1.0
    mode: Annotated[
        Mode | None,
        typer.Option(
            help=(
                "Unit of synthesis: [bold]clause[/bold], each clause; [bold]live[/bold],"
                " the text as it arrives; [bold]auto[/bold], the first clause live, the"
                " rest by clauses; [bold]whole[/bold] and [bold]whole_streaming[/bold], the"
                " complete text. Default: auto."
            ),
            rich_help_panel=PANEL,
        ),
    ] = None
    instructions: Annotated[
        str | None,
        typer.Option(
            "--instructions",
            "-i",
            metavar="TEXT",
            help="Speaking style, in words; for a VoiceDesign checkpoint: the voice.",
            rich_help_panel=PANEL,
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="NUMBER",
            help="Random seed: equal seed, text and voice give equal speech.",
            rich_help_panel=PANEL,
        ),
    ] = None
    temperature: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=2.0,
            help="Sampling temperature: 0 takes the likeliest token, above 1 varies much.",
            rich_help_panel=PANEL,
        ),
    ] = None
    clone: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            readable=True,
            metavar="FILE",
            help=(
                "Clone the voice of this recording, 1 to 60 s of one person; the server"
                " needs a Base checkpoint."
            ),
            rich_help_panel=PANEL,
        ),
    ] = None
    ref_text: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="With --clone: the full transcript of the recording.",
            rich_help_panel=PANEL,
        ),
    ] = None
    x_vector_only: Annotated[
        bool,
        typer.Option(
            "--x-vector-only",
            help=(
                "With --clone: use only the speaker embedding (x-vector); no transcript is needed."
            ),
            rich_help_panel=PANEL,
        ),
    ] = False

    def check(self) -> None:
        if self.clone is not None and self.voice is not None:
            raise typer.BadParameter("give --voice or --clone, one of the two.")
        if self.clone is None and (self.ref_text is not None or self.x_vector_only):
            raise typer.BadParameter("--ref-text and --x-vector-only belong to --clone FILE.")

    @property
    def options(self) -> dict[str, Any]:
        """Return given fields of ``context.open`` without voice and language."""
        from qwen3tts_wire.messages import Sampling

        given: dict[str, Any] = {}
        if self.speed != 1.0:
            given["speed"] = self.speed
        if self.mode is not None:
            given["mode"] = self.mode.value
        if self.instructions is not None:
            given["instructions"] = self.instructions
        if self.seed is not None:
            given["seed"] = self.seed
        if self.temperature is not None:
            given["sampling"] = Sampling(temperature=self.temperature)
        return given

    async def voiced(self, client: SpeechClient) -> SpeechOptions:
        """Return a copy with the cloned voice, if any; raises SpeechError, OSError."""
        if self.clone is None:
            return self
        ready = await client.load_voice(
            self.clone.read_bytes(), self.ref_text, x_vector_only=self.x_vector_only
        )
        note(f"The voice of {self.clone.name} is --voice {ready.voice_id} while the server runs.")
        if ready.ref_text and not self.ref_text:
            note(f"Transcript: {ready.ref_text}")
        return replace(self, voice=ready.voice_id, clone=None, ref_text=None, x_vector_only=False)

    async def voiced_at(self, url: str) -> SpeechOptions:
        from qwen3tts_wire.client import SpeechClient

        if self.clone is None:
            return self
        async with await SpeechClient.connect(url) as client:
            return await self.voiced(client)


def note_ignored_options(ignored: Iterable[str]) -> None:
    if names := ", ".join(OPTION_NAMES.get(each, each) for each in ignored):
        note(f"This voice does not support {names}; ignored.")


def note_text_mode(asked: Mode | None, used: str) -> None:
    if asked is not None and asked is not Mode.CLAUSE and used == Mode.CLAUSE:
        note(f"This voice does not support the mode {asked}; it speaks by clauses.")
