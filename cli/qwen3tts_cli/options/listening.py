"""Listening options of ``call`` and ``answer``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qwen3tts_cli.output.exits import require_extra
from qwen3tts_cli.output.writable import check_writable

if TYPE_CHECKING:
    from qwen3tts_phone.detection.settings import ListenSettings

LISTENING = "Listening"
AGENT = "Agent (with --llm and --stt)"
MODEL_CHECK_S = 8.0
"""Timeout; local models take that long to load."""


class Detector(StrEnum):
    SILERO = "silero"
    WEBRTC = "webrtc"
    LEVEL = "level"


class Preset(StrEnum):
    MENU = "menu"
    TALK = "talk"
    PATIENT = "patient"


class NoiseSuppression(StrEnum):
    OFF = "off"
    AUTO = "auto"
    ON = "on"


class Overlap(StrEnum):
    DUCK = "duck"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class ListenOptions:
    """Listening options; None: default of `ListenSettings` and `AgentSettings`."""

    stt: Annotated[
        str | None,
        typer.Option(
            "--stt",
            metavar="NAME",
            help=(
                "Recognise the caller's speech, with --llm for an agent:"
                " [bold]whisper[/bold], [bold]whisper:MODEL[/bold] (a folder, or a size"
                " such as tiny.en), [bold]openai[/bold] or [bold]openai:URL[/bold]"
                " (OpenAI's transcription route), [bold]deepgram[/bold], or a recogniser's"
                " address, ws://… or wss://…."
            ),
            rich_help_panel=LISTENING,
        ),
    ] = None
    barge_in: Annotated[
        bool | None,
        typer.Option(
            "--barge-in/--no-barge-in",
            help=(
                "Whether the caller's voice interrupts speech. Default: on with --stt, off"
                " with call --listen."
            ),
            show_default=False,
            rich_help_panel=LISTENING,
        ),
    ] = None
    vad: Annotated[
        Detector | None,
        typer.Option(
            "--vad",
            help=(
                "Voice activity detector: a small model (default), WebRTC's, or the level alone."
            ),
            rich_help_panel=LISTENING,
        ),
    ] = None
    onset_ms: Annotated[
        int | None,
        typer.Option(
            "--onset-ms",
            min=10,
            max=1000,
            help=(
                "Speech that triggers barge-in. Less reacts sooner; more ignores a cough"
                " or a short word."
            ),
            rich_help_panel=LISTENING,
        ),
    ] = None
    listen_preset: Annotated[
        Preset | None,
        typer.Option(
            "--listen-preset",
            help=(
                "Figures of the ends of turns: [bold]menu[/bold] for short answers and numbers,"
                " [bold]talk[/bold] (default), [bold]patient[/bold] for callers who think or"
                " dictate. Other options override it."
            ),
            rich_help_panel=LISTENING,
        ),
    ] = None
    adaptive_pause: Annotated[
        bool | None,
        typer.Option(
            "--adaptive-pause/--fixed-pause",
            help=(
                "Whether words, melody and the agent's question choose the pause that ends a"
                " turn. Default: on."
            ),
            show_default=False,
            rich_help_panel=LISTENING,
        ),
    ] = None
    pause_ms: Annotated[
        int | None,
        typer.Option(
            "--pause-ms",
            min=100,
            max=5000,
            help=(
                "Silence that ends the caller's turn (endpointing). Less answers sooner,"
                " and interrupts more people."
            ),
            rich_help_panel=LISTENING,
        ),
    ] = None
    smart_turn: Annotated[
        str | None,
        typer.Option(
            "--smart-turn",
            metavar="FILE",
            help=(
                "Ask the network Smart Turn at each pause whether the caller has finished:"
                " smart-turn-v3.2-cpu.onnx, or [bold]auto[/bold] for that of an installed"
                " pipecat-ai."
            ),
            rich_help_panel=LISTENING,
        ),
    ] = None
    overlap: Annotated[
        Overlap | None,
        typer.Option(
            "--overlap",
            help=(
                "What the caller's voice does to the agent's: [bold]stop[/bold] it immediately,"
                " or [bold]duck[/bold] it and decide by the words, so that a 'mhm' does not"
                " stop it (needs --stt)."
            ),
            rich_help_panel=LISTENING,
        ),
    ] = None
    noise_suppression: Annotated[
        NoiseSuppression | None,
        typer.Option(
            "--noise-suppression",
            help=(
                "Suppress noise and other voices around the caller: [bold]auto[/bold] (default)"
                " where the line is noisy, [bold]on[/bold] always, [bold]off[/bold] never."
            ),
            rich_help_panel=LISTENING,
        ),
    ] = None
    greeting: Annotated[
        str | None,
        typer.Option(
            "--greeting",
            metavar="TEXT",
            help="The agent's greeting; default: the model writes it, as --prompt says.",
            rich_help_panel=AGENT,
        ),
    ] = None
    filler: Annotated[
        str | None,
        typer.Option(
            "--filler",
            metavar="TEXT",
            help="Filler when the model takes more than 1.5 s, such as 'One moment, please.'",
            rich_help_panel=AGENT,
        ),
    ] = None
    preemptive: Annotated[
        bool | None,
        typer.Option(
            "--preemptive/--no-preemptive",
            help=(
                "Whether the reply is prepared while the caller's pause lasts. Default: on;"
                " off saves requests to the model."
            ),
            show_default=False,
            rich_help_panel=AGENT,
        ),
    ] = None
    conversation_log: Annotated[
        Path | None,
        typer.Option(
            "--conversation-log",
            dir_okay=False,
            help=(
                "Append one JSON line per turn: stage times, interruptions; text only with"
                " --transcript."
            ),
            rich_help_panel=AGENT,
        ),
    ] = None
    check_seconds: Annotated[
        float,
        typer.Option(
            "--check-seconds",
            min=0,
            max=600,
            help=(
                "Timeout of the check before any call, which requests one token of --llm;"
                " 0 = no check."
            ),
            rich_help_panel=AGENT,
        ),
    ] = MODEL_CHECK_S
    transcript: Annotated[
        bool,
        typer.Option(
            "--transcript",
            help="Show the text of both sides, and write it to the conversation log.",
            rich_help_panel=AGENT,
        ),
    ] = False

    def check(self) -> None:
        if self.stt is not None and not self.stt.strip():
            raise typer.BadParameter("--stt is empty.")
        if self.stt is None:
            agents = {
                "--greeting": self.greeting is not None,
                "--filler": self.filler is not None,
                "--preemptive": self.preemptive is not None,
                "--conversation-log": self.conversation_log is not None,
                "--transcript": self.transcript,
            }
            if given := [name for name, there in agents.items() if there]:
                raise typer.BadParameter(
                    f"{' and '.join(given)}: needs an agent. Add --stt, such as --stt whisper,"
                    " and --llm."
                )
            listened = {
                "--vad": self.vad,
                "--onset-ms": self.onset_ms,
                "--listen-preset": self.listen_preset,
                "--adaptive-pause": self.adaptive_pause,
                "--pause-ms": self.pause_ms,
                "--smart-turn": self.smart_turn,
                "--overlap": self.overlap,
                "--noise-suppression": self.noise_suppression,
            }
            given = [name for name, value in listened.items() if value is not None]
            if given and not self.barge_in:
                raise typer.BadParameter(
                    f"{' and '.join(given)}: needs speech detection. Add --barge-in or --stt."
                )
        named = {
            "--greeting": self.greeting,
            "--filler": self.filler,
            "--smart-turn": self.smart_turn,
        }
        for name, text in named.items():
            if text is not None and not text.strip():
                raise typer.BadParameter(f"{name} is empty.")
        check_writable("--conversation-log", self.conversation_log)

    @property
    def listens(self) -> bool:
        """Whether barge-in is on."""
        return self.stt is not None if self.barge_in is None else self.barge_in

    def settings(self, file: ListenSettings | None = None) -> ListenSettings:
        """Return the settings of ``file``, or the defaults, with those that were given."""
        with require_extra("phone"):
            from qwen3tts_phone.detection.settings import PRESETS, ListenSettings

        plain = file or ListenSettings()
        changes: dict[str, Any] = {}
        if self.listen_preset is not None:
            changes = dict(PRESETS[self.listen_preset.value])
            plain = replace(plain, **changes)
        changes["barge_in"] = self.listens
        if self.barge_in is None and file is not None:
            changes["barge_in"] = self.listens and file.barge_in
        if self.vad is not None:
            changes["detector"] = self.vad.value
        if self.onset_ms is not None:
            changes["barge_in_ms"] = self.onset_ms
            changes["onset_ms"] = min(plain.onset_ms, self.onset_ms)
        if self.pause_ms is not None:
            changes["pause_ms"] = self.pause_ms
            changes["notice_ms"] = min(plain.notice_ms, self.pause_ms)
            changes["longest_pause_ms"] = max(plain.longest_pause_ms, self.pause_ms)
        if self.adaptive_pause is not None:
            changes["adaptive_pause"] = self.adaptive_pause
        if self.smart_turn is not None:
            changes["smart_turn"] = self.smart_turn
        if self.overlap is not None:
            changes["overlap"] = self.overlap.value
        if self.noise_suppression is not None:
            changes["noise_suppression"] = self.noise_suppression.value
        try:
            return replace(plain, **changes)
        except ValueError as error:
            raise typer.BadParameter(f"{error}.") from error
