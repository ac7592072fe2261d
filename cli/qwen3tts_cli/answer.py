"""``mr-qwen3tts answer``: wait for calls and speak to each."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from logging import getLogger
from typing import TYPE_CHECKING, Annotated

import typer

from qwen3tts_cli import options
from qwen3tts_cli.exits import first_error, needs, run
from qwen3tts_cli.output import complain_of, note
from qwen3tts_cli.speech import speech_server
from qwen3tts_cli.talk import Telephone, checked_digits, talk
from qwen3tts_cli.words import DEFAULT_PROMPT, Words, choose_words
from qwen3tts_wire.errors import SpeechError

if TYPE_CHECKING:
    from qwen3tts_phone.phone import Call

log = getLogger(__name__)


def add_to(app: typer.Typer) -> None:
    """Put the subcommand into ``app``."""
    app.command(
        epilog="Examples:\n\n  mr-qwen3tts answer --port 5070 --say 'Hello, you have reached us.'"
        "\n\n  mr-qwen3tts answer --stdin --once --record call.wav\n\n"
        "  mr-qwen3tts answer --host 192.0.2.7 --port 5060"
        " --llm http://127.0.0.1:11434/v1 --model llama3.2"
    )(answer)


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
    latency_log: options.LatencyLogFile = None,
    max_seconds: options.MaxSeconds = None,
    host: options.SipHost = "127.0.0.1",
    port: options.SipPort = 5060,
    user: options.SipUser = None,
    password_env: options.PasswordEnv = "MR_QWEN3TTS_SIP_PASSWORD",
    registrar: options.Registrar = None,
    voice: options.VoiceName = None,
    language: options.Language = None,
    server: options.Server = None,
) -> None:
    """[bold]Answer[/bold] calls, say the words to each caller, and hang up. Ctrl-C ends it."""
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
    run(attend(telephone, words, digits, max_seconds, once or words.once, server))


async def attend(
    telephone: Telephone,
    words: Words,
    digits: str,
    max_seconds: float | None,
    once: bool,
    server: str | None,
) -> None:
    """Answer calls, each on its own; with ``once`` the error of the one call is raised."""
    with needs("phone"):
        from qwen3tts_phone.phone import Phone
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(speech_server(server))
        settings = telephone.settings(url, max_calls=1 if once else 200)
        phone = await stack.enter_async_context(Phone(settings))
        note(f"Waiting for calls at {phone.uri}.")
        group = await stack.enter_async_context(asyncio.TaskGroup())
        async for incoming in phone.incoming():
            if once:
                await converse(incoming, words, digits, max_seconds)
                return
            group.create_task(guarded(incoming, words, digits, max_seconds))


async def converse(call: Call, words: Words, digits: str, max_seconds: float | None) -> None:
    """Answer one call and see it through."""
    note(f"{call.remote_uri} calls.")
    await call.answer()
    await talk(call, words, digits=digits, max_seconds=max_seconds)


async def guarded(call: Call, words: Words, digits: str, max_seconds: float | None) -> None:
    """The same; an error ends this call only."""
    try:
        await converse(call, words, digits, max_seconds)
    except Exception as failure:
        error = first_error(failure)
        if isinstance(error, SpeechError):
            complain_of(error)
        else:
            log.exception("a call failed")
