"""``mr-qwen3tts call``: call a SIP address and speak."""

from __future__ import annotations

from typing import Annotated

import typer

from qwen3tts_cli import options
from qwen3tts_cli.exits import needs, run
from qwen3tts_cli.output import notes
from qwen3tts_cli.speech import speech_server
from qwen3tts_cli.talk import Telephone, checked_digits, talk
from qwen3tts_cli.words import DEFAULT_PROMPT, Words, choose_words


def add_to(app: typer.Typer) -> None:
    """Put the subcommand into ``app``."""
    app.command(
        epilog="Examples:\n\n  mr-qwen3tts call sip:bob@127.0.0.1:5070 --say 'Hello Bob.'\n\n"
        "  mr-qwen3tts call sip:100@pbx.example.org --stdin --record call.wav"
        " --registrar sip:pbx.example.org --user 200\n\n"
        "  mr-qwen3tts call sip:bob@127.0.0.1 --llm http://127.0.0.1:11434/v1 --model llama3.2"
    )(call)


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
    host: options.SipHost = "127.0.0.1",
    port: options.SipPort = 0,
    user: options.SipUser = None,
    password_env: options.PasswordEnv = "MR_QWEN3TTS_SIP_PASSWORD",
    registrar: options.Registrar = None,
    voice: options.VoiceName = None,
    language: options.Language = None,
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
    digits = checked_digits(dtmf)
    telephone = Telephone(
        host=host,
        port=port,
        user=user,
        password_env=password_env,
        registrar=registrar,
        record=record,
        latency_log=latency_log,
        voice=voice,
        language=language,
    )
    run(place(uri, telephone, words, digits, max_seconds, server))


async def place(
    uri: str,
    telephone: Telephone,
    words: Words,
    digits: str,
    max_seconds: float | None,
    server: str | None,
) -> None:
    """Place one call and see it through."""
    with needs("phone"):
        from qwen3tts_phone.phone import Phone
    async with speech_server(server) as url, Phone(telephone.settings(url)) as phone:
        with notes().status("Calling …"):
            placed = await phone.dial(uri)
            await placed.answered()
        await talk(placed, words, digits=digits, max_seconds=max_seconds)
