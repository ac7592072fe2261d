"""Options and settings shared by subcommands."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import MISSING, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol, get_type_hints, runtime_checkable

import typer

from qwen3tts_cli.output.console import note, notes


class Srtp(StrEnum):
    OFF = "off"
    ACCEPT = "accept"
    REQUIRE = "require"


def codec_names(incomplete: str) -> list[str]:
    """Complete the last name of ``--codecs``."""
    from qwen3tts_codecs.table import SDP_CODECS

    done, comma, begun = incomplete.rpartition(",")
    return [
        f"{done}{comma}{spec.name}"
        for spec in SDP_CODECS.values()
        if spec.name.lower().startswith(begun.strip().lower())
    ]


Server = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="MR_QWEN3TTS_SERVER",
        help=(
            "Speech server, ws://HOST:PORT/v1/speech. Default: the best installed"
            " voice on this machine."
        ),
        rich_help_panel="Voice",
    ),
]
SayText = Annotated[
    str | None, typer.Option("--say", metavar="TEXT", help="Say this.", rich_help_panel="Words")
]
SayFile = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="Speak this text file (UTF-8).",
        rich_help_panel="Words",
    ),
]
SayStdin = Annotated[
    bool,
    typer.Option(
        "--stdin",
        help="Speak what is typed or piped in, as it arrives; Ctrl-D ends it.",
        rich_help_panel="Words",
    ),
]
ByKey = Annotated[
    bool,
    typer.Option(
        "--by-key",
        help="With --stdin at a terminal: send each key immediately, not each line.",
        rich_help_panel="Words",
    ),
]
TokenMs = Annotated[
    float,
    typer.Option(
        min=0,
        max=5000,
        help="With --say: stream it token by token as a model would, at this interval.",
        rich_help_panel="Words",
    ),
]
LlmUrl = Annotated[
    str | None,
    typer.Option(
        "--llm",
        metavar="URL",
        help="Let a language model speak: base address of an OpenAI-compatible endpoint, such as"
        " http://127.0.0.1:11434/v1.",
        rich_help_panel="Words",
    ),
]
LlmModel = Annotated[
    str,
    typer.Option("--model", metavar="NAME", help="The model's name.", rich_help_panel="Words"),
]
LlmSystem = Annotated[
    str,
    typer.Option(
        "--system", metavar="TEXT", help="Instructions to the model.", rich_help_panel="Words"
    ),
]
LlmPrompt = Annotated[
    str,
    typer.Option(
        "--prompt", metavar="TEXT", help="First message for the model.", rich_help_panel="Words"
    ),
]
LlmKeyEnv = Annotated[
    str,
    typer.Option(
        "--key-env",
        metavar="VARIABLE",
        help="Environment variable that holds the model's key; a key is never an argument.",
        rich_help_panel="Words",
    ),
]
Record = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help=(
            "Record the call to this file, caller left, agent right; format by its"
            " suffix: .wav, .flac, .mp3, .ogg or .opus."
        ),
        rich_help_panel="Call",
    ),
]
Dtmf = Annotated[
    str | None,
    typer.Option(
        metavar="DIGITS",
        help="Send these DTMF digits (0-9 * # A-D) before speech.",
        rich_help_panel="Call",
    ),
]
LatencyLogFile = Annotated[
    Path | None,
    typer.Option(
        "--latency-log",
        help="Append one line per utterance; [bold]mr-qwen3tts latency[/bold] reads it.",
        dir_okay=False,
        rich_help_panel="Call",
    ),
]
Otel = Annotated[
    str | None,
    typer.Option(
        "--otel",
        envvar="MR_QWEN3TTS_OTEL",
        metavar="URL",
        help=(
            "Send a span of each call, utterance and stage to this OpenTelemetry"
            " collector, such as http://127.0.0.1:4318; 1: as the OTEL_* variables say."
        ),
        rich_help_panel="Call",
    ),
]
MaxSeconds = Annotated[
    float | None,
    typer.Option(
        "--max-seconds",
        min=1,
        help=("Hang up after this time, also in mid-speech; an agent finishes its sentence."),
        rich_help_panel="Call",
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        envvar="MR_QWEN3TTS_PHONE_CONFIG",
        help=(
            "Phone settings in YAML, such as configs/phone.yaml: accounts, trunks,"
            " TLS, limits, records. Options override it."
        ),
        dir_okay=False,
        rich_help_panel="Telephone",
    ),
]
SipHost = Annotated[
    str | None,
    typer.Option(
        "--host",
        metavar="ADDRESS",
        help="Local address of calls.",
        rich_help_panel="Telephone",
    ),
]
SipPort = Annotated[
    int | None,
    typer.Option(
        "--port",
        min=0,
        max=65535,
        help="Local SIP port; 0 = any.",
        rich_help_panel="Telephone",
    ),
]
SipUser = Annotated[
    str | None,
    typer.Option("--user", metavar="NAME", help="The account's user.", rich_help_panel="Telephone"),
]
PasswordEnv = Annotated[
    str,
    typer.Option(
        metavar="VARIABLE",
        help="Environment variable that holds the account's password; it is never an argument.",
        rich_help_panel="Telephone",
    ),
]
Registrar = Annotated[
    str | None,
    typer.Option(
        metavar="SIP_URI",
        help="Register there, such as sip:pbx.example.org.",
        rich_help_panel="Telephone",
    ),
]
Codecs = Annotated[
    str | None,
    typer.Option(
        "--codecs",
        metavar="NAMES",
        autocompletion=codec_names,
        help="Codecs, comma-separated, best first, such as PCMU,PCMA,G722,opus.",
        rich_help_panel="Telephone",
    ),
]
SrtpMode = Annotated[
    Srtp | None,
    typer.Option(
        "--srtp",
        help="SRTP (SDES): never, where the far end requests it, or required.",
        rich_help_panel="Telephone",
    ),
]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        metavar="NAME: VALUE",
        help="SIP header for the far end, such as 'X-Case: 7'; may be repeated.",
        rich_help_panel="Telephone",
    ),
]
CallLog = Annotated[
    Path | None,
    typer.Option(
        "--call-log",
        help="Append one JSON line per call: times, quality, end reason and failures.",
        dir_okay=False,
        rich_help_panel="Call",
    ),
]
Transfer = Annotated[
    str | None,
    typer.Option(
        "--transfer",
        metavar="SIP_URI",
        help=(
            "After the text, transfer the call to this address instead of hanging up;"
            " an agent does so when its model decides to."
        ),
        rich_help_panel="Call",
    ),
]


class Options(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


@runtime_checkable
class CheckedOptions(Protocol):
    def check(self) -> None:
        """Raise ``typer.BadParameter`` for contradictory options."""


def option_groups(**groups: type[Options]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that replaces parameters of a command by the options of dataclasses.

    ``option_groups(speech=SpeechOptions)``: the fields of the class become options in place of the
    parameter ``speech``; the object is built and checked before the command runs.
    """

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            group = groups.get(parameter.name)
            if group is None:
                parameters.append(parameter)
            else:
                parameters.extend(_parameters(group, parameter))

        @functools.wraps(command)
        def run(**given: Any) -> None:
            made = {
                name: group(**{each: given.pop(each) for each in _names(group)})
                for name, group in groups.items()
            }
            for each in made.values():
                if isinstance(each, CheckedOptions):
                    each.check()
            command(**given, **made)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorated


def _names(group: type[Options]) -> list[str]:
    return [each.name for each in fields(group)]


def _parameters(group: type[Options], at: inspect.Parameter) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            each.name,
            at.kind,
            default=at.empty if each.default is MISSING else each.default,
            annotation=hints[each.name],
        )
        for each in fields(group)
    ]


@asynccontextmanager
async def speech_server(url: str | None) -> AsyncIterator[str]:
    """Yield a server URL, of a child process without ``url``; raises EngineUnavailable."""
    if url is not None:
        yield url
        return
    from qwen3tts_speech.voice_process import VoiceProcess

    async with AsyncExitStack() as stack:
        with notes().status("Starting the voice …"):
            voice = await stack.enter_async_context(VoiceProcess())
        note(voice.engine)
        yield voice.url
