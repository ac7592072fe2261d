"""Subcommand ``rehearse``: simulated callers phone an agent, and their calls are judged."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qwen3tts_cli.call import host_of
from qwen3tts_cli.calls.agent import whisper_available
from qwen3tts_cli.calls.phone import (
    UNUSED_SERVER,
    CallOptions,
    Telephone,
    TelephoneOptions,
    check_target,
    local_address,
    print_config_warnings,
    read_config,
    requires_tls,
    telephone_of,
)
from qwen3tts_cli.calls.text import KEY_ENV
from qwen3tts_cli.options import common as options
from qwen3tts_cli.options.common import option_groups, speech_server
from qwen3tts_cli.options.speech import SpeechOptions
from qwen3tts_cli.output.console import note, notes
from qwen3tts_cli.output.exits import ExitCode, interrupted_by, require_extra
from qwen3tts_cli.output.exits import run as run_loop
from qwen3tts_cli.output.writable import check_folder, check_writable, whole_file
from qwen3tts_cli.rehearsal.report import Progress, print_summary
from qwen3tts_cli.voices import speaks
from qwen3tts_wire.errors import BadRequest

if TYPE_CHECKING:
    from qwen3tts_agent.chat.source import ReplySource
    from qwen3tts_rehearsal.carrier_line import CarrierLine
    from qwen3tts_rehearsal.lines import Line
    from qwen3tts_rehearsal.recognition import SpanRecogniser
    from qwen3tts_rehearsal.rehearsal import PlannedCall
    from qwen3tts_rehearsal.results import RehearsalResult
    from qwen3tts_rehearsal.scenario import Persona

FIRST_OPTIONS = (
    "--call",
    "--line",
    "--repeat",
    "--at-once",
    "--seed",
    "--stt",
    "--html",
    "--junit",
    "--json",
    "--recordings",
    "--config",
    "--user",
)
NO_STT = "none"
WHISPER: dict[str, float] = {"early": False, "timeout_s": 600.0, "most_waiting": 10_000}
"""No caller waits for the words of a rehearsal: many calls may queue for one model."""
PAGE = "index.html"


@dataclass(frozen=True, slots=True)
class RehearsalOptions:
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="SCENARIOS", help="Scenarios in YAML: files, or folders of them."),
    ]
    uri: Annotated[
        str | None,
        typer.Option(
            "--call",
            metavar="SIP_URI",
            help="SIP address of the agent; with --config also a number its server knows.",
        ),
    ] = None
    stream: Annotated[
        str | None,
        typer.Option(
            "--line",
            metavar="CARRIER:URL",
            help=(
                "Media stream of the agent in place of --call, as its carrier connects to it:"
                " twilio:ws://127.0.0.1:8080/twilio."
            ),
        ),
    ] = None
    repeat: Annotated[
        int,
        typer.Option(min=1, max=10_000, help="Calls of each scenario, with the seeds that follow."),
    ] = 1
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, max=999_999, help="First seed of noise, loss and jitter; else the scenario's."
        ),
    ] = None
    same_seed: Annotated[bool, typer.Option("--same-seed", help="Repeat with the same seed.")] = (
        False
    )
    at_once: Annotated[int, typer.Option(min=1, max=200, help="Calls at a time.")] = 4
    stt: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=(
                "Recogniser of the agent's words, as in call --stt, or none. Default: an installed"
                " Whisper model."
            ),
        ),
    ] = None
    recordings: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep the calls' recordings there, in stereo."),
    ] = None
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help=f"Write a report there: {PAGE} and the calls' recordings."
        ),
    ] = None
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a report in JUnit's XML.")
    ] = None
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON on standard output.")
    ] = False
    webhook_port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65535,
            help="Port of 127.0.0.1 where the agent's tools post what scenarios expect.",
        ),
    ] = 8090
    answer_seconds: Annotated[
        float, typer.Option(min=1, max=600, help="Longest wait for the agent to answer.")
    ] = 30.0
    account: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Account or trunk of the file for the calls; default: the first.",
            rich_help_panel="Telephone",
        ),
    ] = None

    def check(self) -> None:
        if (self.uri is None) == (self.stream is None):
            both = "" if self.uri is None else ", not both"
            raise typer.BadParameter(f"give --call SIP_URI or --line CARRIER:URL{both}.")
        if self.stream is not None and ":" not in self.stream:
            raise typer.BadParameter("--line: write it as CARRIER:URL, such as twilio:ws://…")
        check_writable("--junit", self.junit)
        for option, folder in (("--html", self.html), ("--recordings", self.recordings)):
            if folder is not None:
                check_folder(option, folder if folder.exists() else folder.parent)
        if self.html is not None:
            with require_extra("plots"):
                import_module("jinja2")


def add_to(app: typer.Typer) -> None:
    app.command(
        epilog="Examples:\n\n  mr-qwen3tts rehearse configs/scenarios --call sip:agent@127.0.0.1"
        " --html report\n\n  mr-qwen3tts rehearse busy_line.yaml --call sip:100@pbx.example.org"
        " --registrar sip:pbx.example.org --user 200 --repeat 20 --junit report.xml\n\n"
        "  mr-qwen3tts rehearse configs/scenarios/happy_path.yaml"
        " --line twilio:ws://127.0.0.1:8080/twilio"
    )(option_groups(chosen=RehearsalOptions, telephone=TelephoneOptions)(rehearse))


def rehearse(
    chosen: RehearsalOptions,
    telephone: TelephoneOptions,
    *,
    server: options.Server = None,
) -> None:
    """[bold]Rehearse[/bold]: let simulated callers phone an agent, and judge their calls.

    The agent may be any that answers a call. The exit code is 0 when all calls passed.
    """
    with require_extra("phone"):
        from qwen3tts_phone.detection.vad import make_detector
        from qwen3tts_rehearsal.carrier_line import CarrierLine
        from qwen3tts_rehearsal.rehearsal import plan
        from qwen3tts_rehearsal.scenario import read_scenarios

    planned = plan(
        read_scenarios(chosen.paths),
        repeat=chosen.repeat,
        seed=chosen.seed,
        same_seed=chosen.same_seed,
    )
    make_detector("silero")
    way: Telephone | CarrierLine
    if chosen.uri is not None:
        way, target = _telephone(chosen, chosen.uri, telephone), chosen.uri
    else:
        carrier, _, url = (chosen.stream or "").partition(":")
        way = CarrierLine(carrier, url)
        target = way.target
    result, interrupted = run_loop(_run(chosen, planned, way, server))
    _write(chosen, result, target)
    if interrupted is not None:
        raise typer.Exit(interrupted)
    if not result.passed:
        raise typer.Exit(ExitCode.FAILED)


def _telephone(chosen: RehearsalOptions, uri: str, telephone: TelephoneOptions) -> Telephone:
    check_target("--call", uri, names=telephone.has_account)
    config = read_config(telephone.config)
    host = telephone.host
    if config is None and host is None:
        host = local_address(host_of(telephone.registrar or uri))
    made = telephone_of(
        telephone,
        CallOptions(),
        SpeechOptions(),
        config,
        host=host,
        account=chosen.account,
        calling=True,
        secure=requires_tls(uri, telephone.registrar),
    )
    made.check()
    print_config_warnings(config)
    return made


async def _run(
    chosen: RehearsalOptions,
    planned: list[PlannedCall],
    way: Telephone | CarrierLine,
    server: str | None,
) -> tuple[RehearsalResult, ExitCode | None]:
    from qwen3tts_cli.rehearsal.voices import CallerVoices
    from qwen3tts_rehearsal.rehearsal import Rehearsal, RehearsalParts
    from qwen3tts_rehearsal.sounds import SoundBook
    from qwen3tts_rehearsal.webhook import WebhookReceiver

    folder = _recordings_folder(chosen)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        transcribe = await _recogniser(stack, chosen, planned)
        await _check_personas(planned, transcribe)
        webhook = None
        if any(each.scenario.expect.webhook for each in planned):
            webhook = await enter(WebhookReceiver(chosen.webhook_port))
            note(f"The agent's tools are to post to {webhook.url}.")
        parts = RehearsalParts(
            await _line(stack, chosen, way),
            SoundBook(CallerVoices(stack, partial(speech_server, server), speaks)),
            transcribe,
            folder,
            webhook,
            _chat,
        )
        rehearsal = Rehearsal(parts, planned, Progress(len(planned)))
        with notes().status("Making the callers' sounds …"):
            await rehearsal.prepare()
        try:
            return await rehearsal.run(chosen.at_once), None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            note("Interrupted; the calls that are over are reported.")
            return rehearsal.result, interrupted_by()


async def _line(
    stack: AsyncExitStack, chosen: RehearsalOptions, telephone: Telephone | CarrierLine
) -> Line:
    if not isinstance(telephone, Telephone):
        return telephone
    from qwen3tts_phone.phone import Phone
    from qwen3tts_rehearsal.sip_line import SipLine
    from qwen3tts_speech.link import SpeechLink

    assert chosen.uri is not None
    settings = telephone.settings(UNUSED_SERVER, max_calls=chosen.at_once + 1)
    # The callers' sounds are made before the calls: the phone itself says nothing.
    phone = await stack.enter_async_context(
        Phone(settings, link=SpeechLink(UNUSED_SERVER), announce=None)
    )
    return SipLine(
        phone,
        chosen.uri,
        account=telephone.account,
        headers=dict(telephone.headers),
        answer_s=chosen.answer_seconds,
    )


async def _recogniser(
    stack: AsyncExitStack, chosen: RehearsalOptions, planned: list[PlannedCall]
) -> SpanRecogniser | None:
    from qwen3tts_agent.recognition.kinds import recogniser_named
    from qwen3tts_rehearsal.recognition import SpanRecogniser

    languages = tuple(sorted({each.scenario.language.partition("-")[0] for each in planned}))
    name = chosen.stt
    if name is None:
        missing = [each for each in languages if not whisper_available(each)]
        if missing:
            note(
                f"No installed Whisper model understands {', '.join(missing)}: no words are judged."
                " Install one, or name a recogniser with --stt (docs/recognisers.md)."
            )
            return None
        name = "whisper"
    if name == NO_STT:
        return None
    local = WHISPER if name.partition(":")[0] == "whisper" else {}
    recogniser = recogniser_named(name, languages=languages, **local)
    stack.push_async_callback(recogniser.close)
    with notes().status("Loading the recogniser …"):
        await recogniser.warm()
    return SpanRecogniser(recogniser)


async def _check_personas(planned: list[PlannedCall], transcribe: SpanRecogniser | None) -> None:
    """Refuse what no call could be made with. Raises BadRequest."""
    for each in planned:
        if each.scenario.caller is None:
            continue
        if transcribe is None:
            raise BadRequest(
                f"The caller of {each.file} is a language model, which needs a recogniser.",
                remedy="Install a Whisper model, or name a recogniser with --stt.",
            )
        try:
            await _chat(each.scenario.caller).close()
        except BadRequest as error:
            raise BadRequest(f"{each.file}: {error.message}", remedy=error.remedy) from error


def _chat(persona: Persona) -> ReplySource:
    from qwen3tts_agent.chat.client import ChatClient, ChatSettings, api_key_from

    key = api_key_from(persona.key_env)
    if not key and persona.key_env != KEY_ENV:
        raise BadRequest(
            f"The variable {persona.key_env} of key_env is not set.",
            remedy="Set it to the model's key.",
        )
    return ChatClient(ChatSettings(base_url=persona.model, model=persona.name, api_key=key))


def _recordings_folder(chosen: RehearsalOptions) -> Path | None:
    folder = chosen.recordings or chosen.html
    for option, each in (("--recordings", chosen.recordings), ("--html", chosen.html)):
        if each is not None:
            try:
                each.mkdir(mode=0o700, exist_ok=True)
            except OSError as error:
                raise typer.BadParameter(
                    f"{option}: the folder {each} cannot be made: {error.strerror}. Choose another."
                ) from error
    return folder


def _write(chosen: RehearsalOptions, result: RehearsalResult, target: str) -> None:
    if chosen.junit is not None:
        from qwen3tts_rehearsal.junit import junit_xml

        with whole_file(chosen.junit) as file:
            file.write(junit_xml(result).encode("utf-8", "replace"))
    if chosen.html is not None:
        from qwen3tts_cli.rehearsal_page.page import write_page

        page = chosen.html / PAGE
        write_page(result, page, target=target)
        note(f"The report is {page}.")
    if chosen.as_json:
        typer.echo(result.to_json())
    else:
        print_summary(result)
