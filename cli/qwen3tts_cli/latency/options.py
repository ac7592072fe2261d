"""Options of ``latency``; imports nothing heavy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qwen3tts_cli.latency.choices import GroupBy, LogKind, WorstOf

if TYPE_CHECKING:
    from qwen3tts_cli.latency.selection import Selection


_PATTERN = "Only utterances whose {} is this; * and ? stand for any characters; may be given again."


def _filter(what: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        metavar="PATTERN", help=_PATTERN.format(what), rich_help_panel="Which utterances"
    )
    return option


@dataclass(frozen=True)
class Filters:
    call: Annotated[list[str] | None, _filter("call_id")] = None
    engine: Annotated[list[str] | None, _filter("engine")] = None
    voice: Annotated[list[str] | None, _filter("voice")] = None
    ended: Annotated[list[str] | None, _filter("end_reason (text_end, interrupted, failed, …)")] = (
        None
    )
    line: Annotated[list[str] | None, _filter("line (sip, webrtc, …)")] = None
    codec: Annotated[list[str] | None, _filter("codec")] = None
    since: Annotated[
        str | None,
        typer.Option(
            metavar="MOMENT",
            help="Only from here on: '2026-03-01 14:30', '14:30' (today), '90m' (ago).",
            rich_help_panel="Which utterances",
        ),
    ] = None
    until: Annotated[
        str | None,
        typer.Option(
            metavar="MOMENT", help="Only before this.", rich_help_panel="Which utterances"
        ),
    ] = None

    def check(self) -> None:
        limits = self._limits()
        if limits.get("since", -math.inf) >= limits.get("until", math.inf):
            raise typer.BadParameter("--until is not after --since.")

    def selection(self) -> Selection:
        from qwen3tts_cli.latency.selection import FILTERS, Selection

        patterns = {name: tuple(getattr(self, name) or ()) for name in FILTERS}
        return Selection(patterns, **self._limits())

    def _limits(self) -> dict[str, float]:
        said = {"since": self.since, "until": self.until}
        return {
            name: moment_of(f"--{name}", text) for name, text in said.items() if text is not None
        }


@dataclass(frozen=True)
class Views:
    worst: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1000,
            metavar="N",
            help="Waterfalls of the N worst utterances.",
            rich_help_panel="What is shown",
        ),
    ] = None
    worst_of: Annotated[
        WorstOf, typer.Option(help="Ranking of the worst.", rich_help_panel="What is shown")
    ] = WorstOf.FIRST_SOUND
    slowest: Annotated[
        bool,
        typer.Option(
            "--slowest",
            help="Waterfall of the utterance slowest to sound.",
            rich_help_panel="What is shown",
        ),
    ] = False
    chosen: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="CALL/CONTEXT",
            help="Waterfall of this utterance.",
            rich_help_panel="What is shown",
        ),
    ] = None
    group_by: Annotated[
        GroupBy | None,
        typer.Option(
            help="First sound and gaps for each of these.", rich_help_panel="What is shown"
        ),
    ] = None
    with_text: Annotated[
        bool,
        typer.Option(
            "--with-text",
            help="Show and export the text of utterances, where the log has it.",
            rich_help_panel="What is shown",
        ),
    ] = False
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print the figures as JSON.", rich_help_panel="What is shown"),
    ] = False
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help=(
                "Live view of growing logs; q ends it. One line per utterance without a terminal."
            ),
            rich_help_panel="What is shown",
        ),
    ] = False

    def check(self) -> None:
        if sum((self.slowest, self.chosen is not None, self.worst is not None)) > 1:
            raise typer.BadParameter("choose one of --worst, --slowest and --id.")
        if self.follow and self.shows_more:
            raise typer.BadParameter(
                "--follow has a view of its own; leave out --worst, --slowest, --id, --group-by"
                " and --json."
            )

    @property
    def shows_more(self) -> bool:
        """Whether a view of the tables only is requested."""
        one_by_one = self.slowest or self.chosen is not None or self.worst is not None
        return one_by_one or self.as_json or self.group_by is not None


@dataclass(frozen=True)
class Exports:
    before: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LOG",
            help="Compare with this log (file, folder or pattern), from before a change; may be"
            " given again.",
            rich_help_panel="Comparison",
        ),
    ] = None
    split: Annotated[
        str | None,
        typer.Option(
            metavar="MOMENT",
            help="Compare utterances before this time with those after it, in the same logs.",
            rich_help_panel="Comparison",
        ),
    ] = None
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write one self-contained page with plots, waterfalls, and the comparison.",
            dir_okay=False,
            rich_help_panel="Files and other programs",
        ),
    ] = None
    title: Annotated[
        str,
        typer.Option(help="The page's heading.", rich_help_panel="Files and other programs"),
    ] = "Latency"
    perfetto: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a trace for the viewer at ui.perfetto.dev; FILE.gz is compressed.",
            dir_okay=False,
            rich_help_panel="Files and other programs",
        ),
    ] = None
    otel: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Send the utterances as spans to this OpenTelemetry collector (OTLP over HTTP).",
            rich_help_panel="Files and other programs",
        ),
    ] = None
    to: Annotated[
        LogKind | None,
        typer.Option(
            help="Print the utterances as log lines, for mr_sip's latency calculator or as ours,"
            " and nothing else.",
            rich_help_panel="Files and other programs",
        ),
    ] = None
    from_: Annotated[
        LogKind | None,
        typer.Option(
            "--from",
            help="Writer of the logs, where it is not detected.",
            rich_help_panel="Files and other programs",
        ),
    ] = None

    def check(self) -> None:
        if self.before and self.split is not None:
            raise typer.BadParameter("choose one of --before and --split.")
        if self.split is not None:
            moment_of("--split", self.split)
        if self.to is not None and (self.compares or self.writes):
            raise typer.BadParameter(
                "--to prints lines and nothing else; leave out --before, --split, --html,"
                " --perfetto and --otel."
            )
        from qwen3tts_speech.record_sinks import endpoint_of

        try:
            endpoint_of(self.otel)
        except ValueError as error:
            raise typer.BadParameter(f"{error}.") from None

    @property
    def compares(self) -> bool:
        return bool(self.before) or self.split is not None

    @property
    def writes(self) -> bool:
        """Whether there is output besides the terminal."""
        return any(each is not None for each in (self.html, self.perfetto, self.otel))


def moment_of(option: str, text: str) -> float:
    """Parse a time (Unix seconds); raises ``typer.BadParameter``."""
    from datetime import datetime

    from qwen3tts_cli.latency.selection import moment

    try:
        return moment(text, datetime.now().astimezone())
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}") from None
