"""``mr-qwen3tts call``: call a SIP address and speak."""

from __future__ import annotations

from typing import Annotated

import typer

from qwen3tts_cli import options
from qwen3tts_cli.exits import needs, run
from qwen3tts_cli.manner import Manner, tell_ignored, with_manner
from qwen3tts_cli.output import notes
from qwen3tts_cli.speech import speech_server
from qwen3tts_cli.talk import Course, Telephone, checked_digits, local_address, talk
from qwen3tts_cli.words import DEFAULT_PROMPT, Words, choose_words


def add_to(app: typer.Typer) -> None:
    """Put the subcommand into ``app``."""
    app.command(
        epilog="Examples:\n\n  mr-qwen3tts call sip:bob@127.0.0.1:5070 --say 'Hello Bob.'\n\n"
        "  mr-qwen3tts call sip:100@pbx.example.org --stdin --record call.wav"
        " --registrar sip:pbx.example.org --user 200\n\n"
        "  mr-qwen3tts call sip:bob@127.0.0.1 --llm http://127.0.0.1:11434/v1 --model llama3.2"
    )(with_manner(call))


def call(
    uri: Annotated[str, typer.Argument(metavar="SIP_URI", help="Whom to call: sip:USER@HOST.")],
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
    record: options.Record = None,
    dtmf: options.Dtmf = None,
    latency_log: options.LatencyLogFile = None,
    max_seconds: options.MaxSeconds = None,
    barge_in: options.BargeIn = False,
    host: Annotated[
        str | None,
        typer.Option(
            help="The local address that the call uses; without it the one that leads there.",
            rich_help_panel="Telephone",
        ),
    ] = None,
    port: options.SipPort = 0,
    user: options.SipUser = None,
    password_env: options.PasswordEnv = "MR_QWEN3TTS_SIP_PASSWORD",
    registrar: options.Registrar = None,
    *,
    manner: Manner,
    server: options.Server = None,
) -> None:
    """[bold]Call[/bold] a SIP address, say the words as they come, and hang up."""
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
    course = Course(checked_digits(dtmf), max_seconds, barge_in)
    telephone = Telephone(
        host=host or local_address(host_of(registrar or uri)),
        port=port,
        user=user,
        password_env=password_env,
        registrar=registrar,
        record=record,
        latency_log=latency_log,
        manner=manner,
    )
    telephone.check()
    run(place(uri, telephone, words, course, server))


def host_of(uri: str) -> str:
    """The host in a SIP address; raises ``typer.BadParameter`` where it is none."""
    with needs("phone"):
        from qwen3tts_phone.errors import BadSip
        from qwen3tts_phone.sip.fields import parse_uri
    try:
        return parse_uri(uri).host.strip("[]")
    except BadSip as error:
        raise typer.BadParameter(f"{error.message} Write it as sip:USER@HOST:PORT.") from None


async def place(
    uri: str,
    telephone: Telephone,
    words: Words,
    course: Course,
    server: str | None,
) -> None:
    """Place one call and see it through."""
    with needs("phone"):
        from qwen3tts_phone.phone import Phone
    async with speech_server(server) as url:
        manner = await telephone.manner.voiced_at(url)
        async with Phone(telephone.settings(url, manner)) as phone:
            tell_ignored(phone.ignored)
            with notes().status("Calling …"):
                placed = await phone.dial(uri)
                await placed.answered()
            await talk(placed, words, course)
