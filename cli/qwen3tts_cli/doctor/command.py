"""Subcommand ``doctor``: options and order of the checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qwen3tts_cli.call import host_of
from qwen3tts_cli.calls.phone import HERE, Telephone, local_address, requires_tls
from qwen3tts_cli.doctor.options import ConversationOptions
from qwen3tts_cli.doctor.report import Report
from qwen3tts_cli.options import common as options
from qwen3tts_cli.options.common import option_groups
from qwen3tts_cli.options.speech import SpeechOptions
from qwen3tts_cli.output.console import notes
from qwen3tts_cli.output.exits import ExitCode, run

if TYPE_CHECKING:
    from qwen3tts_cli.doctor.checks import Check
    from qwen3tts_cli.doctor.conversation import ConversationParts


PHONE = "Telephone"


FIRST_OPTIONS = (
    "--stt",
    "--llm",
    "--model",
    "--config",
    "--account",
    "--register",
    "--call",
    "--server",
    "--server-config",
    "--host",
    "--port",
    "--json",
)


@dataclass(frozen=True, slots=True)
class ModelOptions:
    checkpoint: Annotated[
        Path | None,
        typer.Option(envvar="MR_QWEN3TTS_CHECKPOINT", help="Model folder to check."),
    ] = None
    forecast: Annotated[
        bool,
        typer.Option(
            "--forecast/--no-forecast",
            envvar="MR_QWEN3TTS_FORECAST",
            help="Measure for some seconds how fast Qwen3-TTS would be on this CPU.",
        ),
    ] = True


@dataclass(frozen=True, slots=True)
class TrialOptions:
    call: Annotated[
        str | None,
        typer.Option(
            metavar="SIP_URI",
            help=(
                "Make a trial call there: send a tone of 2 s, listen, hang up, and"
                " diagnose failures."
            ),
            rich_help_panel=PHONE,
        ),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(
            help="Check phone settings in YAML, such as configs/phone.yaml, and their ports.",
            dir_okay=False,
            rich_help_panel=PHONE,
        ),
    ] = None
    account: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Account or trunk of the file for the call; default: the first.",
            rich_help_panel=PHONE,
        ),
    ] = None
    register: Annotated[
        bool,
        typer.Option(
            "--register",
            help=(
                "Register the account, without --call all of them. Another phone of the"
                " account may miss calls meanwhile."
            ),
            rich_help_panel=PHONE,
        ),
    ] = False
    ring_seconds: Annotated[
        float,
        typer.Option(min=1, max=180, help="With --call: ringing timeout.", rich_help_panel=PHONE),
    ] = 30.0
    listen_seconds: Annotated[
        float,
        typer.Option(
            min=0,
            max=60,
            help="With --call: listening time after the tone.",
            rich_help_panel=PHONE,
        ),
    ] = 4.0
    user: options.SipUser = None
    password_env: options.PasswordEnv = "MR_QWEN3TTS_SIP_PASSWORD"
    registrar: options.Registrar = None


def add_to(app: typer.Typer) -> None:
    app.command(
        epilog="Examples:\n\n  mr-qwen3tts doctor\n\n"
        "  mr-qwen3tts doctor --server ws://10.0.0.5:8765/v1/speech --json\n\n"
        "  mr-qwen3tts doctor --llm http://127.0.0.1:11434/v1 --model llama3.2\n\n"
        "  mr-qwen3tts doctor --config phone.yaml\n\n"
        "  mr-qwen3tts doctor --config phone.yaml --account office --register"
        " --call sip:200@pbx.example.org\n\n"
        "The exit code is 0 unless a line says [bold]fail[/bold]; then it is 1. With --json all"
        " lines come as one list when everything is done."
    )(option_groups(model=ModelOptions, talk=ConversationOptions, trial=TrialOptions)(doctor))


def doctor(
    host: Annotated[
        str | None,
        typer.Option(help="Local address of calls; default 127.0.0.1."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="SIP port to check; default 5060."),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(metavar="URL", envvar="MR_QWEN3TTS_SERVER", help="Speech server to check."),
    ] = None,
    server_config: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Check server settings in YAML, such as configs/server.yaml, with"
                " certificate and keys."
            ),
            dir_okay=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    *,
    model: ModelOptions,
    talk: ConversationOptions,
    trial: TrialOptions,
) -> None:
    """Check [bold]this machine[/bold]: packages, audio, ports, GPU, network, voice, recogniser.

    With --llm also a language model and the response time; with --config phone settings;
    with --server-config server settings; with --call a trial call and its diagnosis.
    """
    from qwen3tts_cli.doctor.checks import Level
    from qwen3tts_cli.doctor.conversation import conversation_parts
    from qwen3tts_cli.doctor.targets import checked_phone, phone_checks, run_trial, server_checks
    from qwen3tts_cli.doctor.trial_call import Trial

    report = Report(as_json)
    plain = trial.config is None and trial.call is None and trial.registrar is None
    wanted = talk.named or (plain and not talk.left_out)
    parties = conversation_parts(talk, server) if wanted else None
    if server_config is not None:
        report.add_all(server_checks(server_config))
    if plain:
        with notes().status("Looking …"):
            report.add_all(
                all_checks(host or HERE, 5060 if port is None else port, model.checkpoint, server)
            )
            if model.forecast:
                from qwen3tts_cli.doctor.forecast import cpu_forecast

                report.add(cpu_forecast())
    else:
        telephone = checked_phone(
            report,
            trial.config,
            lambda file: Telephone(
                host=host
                or (None if file else local_address(host_of(trial.registrar or trial.call or ""))),
                port=port
                if port is not None or trial.config is not None or trial.call is None
                else 0,
                user=trial.user,
                password_env=trial.password_env,
                registrar=trial.registrar,
                record=None,
                latency_log=None,
                speech_options=SpeechOptions(),
                config=file,
                account=trial.account,
                calling=trial.call is not None,
                secure=requires_tls(trial.call, trial.registrar),
            ),
        )
        if telephone is not None:
            if trial.call is None and not trial.register and trial.registrar is None:
                report.add_all(phone_checks(telephone, server))
            else:
                register = trial.register or trial.call is None
                made = Trial(
                    trial.call, trial.account, register, trial.ring_seconds, trial.listen_seconds
                )
                run(run_trial(report, telephone, made))
    if parties is not None:
        run(try_conversation(report, parties))
    report.close()
    if any(each.level is Level.FAIL for each in report.made):
        raise typer.Exit(ExitCode.FAILED)


async def try_conversation(report: Report, parties: ConversationParts) -> None:
    from qwen3tts_cli.doctor.conversation import conversation_checks

    with notes().status("Listening …"):
        async for check in conversation_checks(parties):
            report.add(check)


def all_checks(
    host: str, port: int, checkpoint: Path | None, server: str | None
) -> Iterator[Check]:
    from qwen3tts_cli.doctor import checks
    from qwen3tts_cli.doctor.targets import speech_server

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
