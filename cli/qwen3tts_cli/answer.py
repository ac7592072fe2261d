"""Subcommand ``answer``: answer calls and speak to each caller."""

from __future__ import annotations

import typer

from qwen3tts_cli.calls.agent import check_agent
from qwen3tts_cli.calls.answering import answer_calls
from qwen3tts_cli.calls.call_run import CallPlan, checked_digits
from qwen3tts_cli.calls.lines import SIP, SIP_PORT, LineOptions
from qwen3tts_cli.calls.listening_page import ListeningPageOptions
from qwen3tts_cli.calls.phone import (
    HERE,
    CallOptions,
    TelephoneOptions,
    check_target,
    print_config_warnings,
    read_config,
    requires_tls,
    telephone_of,
)
from qwen3tts_cli.calls.text import TextOptions
from qwen3tts_cli.options import common as options
from qwen3tts_cli.options.common import option_groups
from qwen3tts_cli.options.listening import ListenOptions
from qwen3tts_cli.options.speech import SpeechOptions
from qwen3tts_cli.output.exits import run as run_loop

FIRST_OPTIONS = (
    "--say",
    "--file",
    "--llm",
    "--model",
    "--stt",
    "--greeting",
    "--voice",
    "--record",
    "--host",
    "--port",
    "--line",
    "--config",
)


def add_to(app: typer.Typer) -> None:
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
    )(
        option_groups(
            words=TextOptions,
            run=CallOptions,
            lines=LineOptions,
            telephone=TelephoneOptions,
            speech_options=SpeechOptions,
            listening=ListenOptions,
            page=ListeningPageOptions,
        )(answer)
    )


def answer(
    words: TextOptions,
    run: CallOptions,
    lines: LineOptions,
    telephone: TelephoneOptions,
    speech_options: SpeechOptions,
    listening: ListenOptions,
    page: ListeningPageOptions,
    *,
    server: options.Server = None,
) -> None:
    """[bold]Answer[/bold] calls, speak the text to each caller, and hang up.

    With --llm and --stt hold a conversation with each. Ctrl-C ends it; SIGTERM stops
    accepting calls and lets active calls finish.
    """
    said_words = words.words()
    names = telephone.has_account or set(lines.kinds) != {SIP}
    check_target("--transfer", run.transfer, names=names)
    said = read_config(telephone.config)
    plan = CallPlan(
        checked_digits(run.dtmf),
        run.max_seconds,
        listening,
        run.transfer,
        hearing=said.hearing if said is not None else None,
    )
    check_agent(said_words, plan)
    ports = lines.ports(telephone.port)
    host, sip_port = telephone.host, ports.sip
    if said is None:
        host, sip_port = host or HERE, SIP_PORT if sip_port is None else sip_port
    if SIP not in lines.kinds:
        check_sip_options(telephone)
    made = telephone_of(
        telephone,
        run,
        speech_options,
        said,
        host=host,
        port=sip_port,
        secure=requires_tls(telephone.registrar),
    )
    made.check()
    print_config_warnings(said)
    run_loop(answer_calls(made, said_words, plan, server, lines, ports, page))


def check_sip_options(telephone: TelephoneOptions) -> None:
    """Refuse SIP options without a SIP line; raises ``typer.BadParameter``."""
    of_sip = ("user", "registrar", "codecs", "srtp", "header")
    names = [f"--{name}" for name in of_sip if getattr(telephone, name) is not None]
    if names:
        raise typer.BadParameter(f"{' and '.join(names)}: for SIP calls only. Add --line sip.")
