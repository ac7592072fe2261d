"""``mr-qwen3tts answer``: wait for calls and speak to each."""

from __future__ import annotations

from typing import Annotated

import typer

from qwen3tts_cli.calls.agent import check_agent
from qwen3tts_cli.calls.answering import DRAIN_S, attend
from qwen3tts_cli.calls.call_run import Course, checked_digits
from qwen3tts_cli.calls.lines import SIP, SIP_PORT, LineOptions
from qwen3tts_cli.calls.listening_page import BesideOptions
from qwen3tts_cli.calls.phone import (
    HERE,
    Telephone,
    asks_for_tls,
    check_target,
    headers_of,
    read_config,
    tell_remarks,
)
from qwen3tts_cli.calls.words import DEFAULT_PROMPT, choose_words
from qwen3tts_cli.options import common as options
from qwen3tts_cli.options.common import spread
from qwen3tts_cli.options.listening import ListenOptions
from qwen3tts_cli.options.speech import Manner
from qwen3tts_cli.output.exits import run


def add_to(app: typer.Typer) -> None:
    """Put the subcommand into ``app``."""
    app.command(
        epilog="Examples:\n\n  mr-qwen3tts answer --port 5070 --say 'Hello, you have reached us.'"
        "\n\n  mr-qwen3tts answer --file opening-hours.txt --barge-in --record calls.wav"
        "\n\n  mr-qwen3tts answer --stdin --record call.wav\n\n"
        "  mr-qwen3tts answer --host 192.0.2.7 --llm http://127.0.0.1:11434/v1 --model llama3.2"
        " --stt whisper --greeting 'Good morning!'\n\n"
        "  mr-qwen3tts answer --line audiosocket --line twilio:8443 --certificate site.pem"
        " --host 0.0.0.0 --llm http://127.0.0.1:11434/v1 --stt whisper\n\n"
        "  mr-qwen3tts answer --config configs/phone.yaml --say 'Hello, you have reached us.'"
        " --softphone 8780"
    )(spread(manner=Manner, listening=ListenOptions, lines=LineOptions, page=BesideOptions)(answer))


def answer(
    say: options.SayText = None,
    token_ms: options.TokenMs = 0.0,
    file: options.SayFile = None,
    stdin: options.SayStdin = False,
    by_key: options.ByKey = False,
    llm: options.LlmUrl = None,
    model: options.LlmModel = "default",
    system: options.LlmSystem = "",
    prompt: options.LlmPrompt = DEFAULT_PROMPT,
    key_env: options.LlmKeyEnv = "MR_QWEN3TTS_LLM_KEY",
    once: Annotated[
        bool,
        typer.Option("--once", help="End after one call; --stdin implies it."),
    ] = False,
    record: options.Record = None,
    dtmf: options.Dtmf = None,
    call_log: options.CallLog = None,
    latency_log: options.LatencyLogFile = None,
    otel: options.Otel = None,
    max_seconds: options.MaxSeconds = None,
    transfer: options.Transfer = None,
    drain_seconds: Annotated[
        float,
        typer.Option(
            min=0,
            help="After SIGTERM calls under way have so long to end by themselves.",
            rich_help_panel="Call",
        ),
    ] = DRAIN_S,
    config: options.PhoneConfig = None,
    host: options.SipHost = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            help="The local port of the line that is named first, SIP if none is; 0 is any.",
            rich_help_panel="Telephone",
        ),
    ] = None,
    user: options.SipUser = None,
    password_env: options.PasswordEnv = "MR_QWEN3TTS_SIP_PASSWORD",
    registrar: options.Registrar = None,
    codecs: options.Codecs = None,
    srtp: options.SrtpMode = None,
    header: options.Headers = None,
    *,
    manner: Manner,
    listening: ListenOptions,
    lines: LineOptions,
    page: BesideOptions,
    server: options.Server = None,
) -> None:
    """[bold]Answer[/bold] calls, say the words to each caller, and hang up; with --llm and --stt
    talk with each. Ctrl-C ends it; SIGTERM takes no new calls and lets those under way end."""
    words = choose_words(
        say=say,
        token_ms=token_ms,
        file=file,
        stdin=stdin,
        by_key=by_key,
        llm=llm,
        model=model,
        system=system,
        prompt=prompt,
        key_env=key_env,
    )
    names = config is not None or registrar is not None or set(lines.kinds) != {SIP}
    check_target("--transfer", transfer, names=names)
    course = Course(checked_digits(dtmf), max_seconds, listening, transfer)
    check_agent(words, course)
    said = read_config(config)
    ports = lines.ports(port)
    sip_port = ports.sip
    if said is None:
        host, sip_port = host or HERE, SIP_PORT if sip_port is None else sip_port
    if SIP not in lines.kinds:
        check_sip_options(user=user, registrar=registrar, codecs=codecs, srtp=srtp, header=header)
    telephone = Telephone(
        host=host,
        port=sip_port,
        user=user,
        password_env=password_env,
        registrar=registrar,
        record=record,
        latency_log=latency_log,
        otel=otel,
        manner=manner,
        config=said,
        codecs=codecs,
        srtp=srtp,
        call_log=call_log,
        headers=headers_of(header),
        secure=asks_for_tls(registrar),
    )
    telephone.check()
    tell_remarks(said)
    once = once or words.once
    run(attend(telephone, words, course, once, server, drain_seconds, lines, ports, page))


def check_sip_options(**given: object) -> None:
    """Refuse options of SIP where there is no such line; raises ``typer.BadParameter``."""
    names = [f"--{name}" for name, value in given.items() if value is not None]
    if names:
        raise typer.BadParameter(
            f"{' and '.join(names)}: only calls over SIP have that. Add --line sip."
        )
