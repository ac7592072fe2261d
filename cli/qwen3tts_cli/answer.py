"""``mr-qwen3tts answer``: wait for calls and speak to each."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from logging import getLogger
from typing import TYPE_CHECKING, Annotated

import typer

from qwen3tts_cli import options
from qwen3tts_cli.exits import first_error, needs, run
from qwen3tts_cli.manner import Manner, tell_ignored, with_manner
from qwen3tts_cli.output import about, complain_of, note
from qwen3tts_cli.serve import is_loopback
from qwen3tts_cli.speech import speech_server
from qwen3tts_cli.talk import Course, Telephone, checked_digits, local_address, talk
from qwen3tts_cli.words import DEFAULT_PROMPT, Words, choose_words
from qwen3tts_wire.errors import SpeechError

if TYPE_CHECKING:
    from qwen3tts_phone.phone import Call

log = getLogger(__name__)


def add_to(app: typer.Typer) -> None:
    """Put the subcommand into ``app``."""
    app.command(
        epilog="Examples:\n\n  mr-qwen3tts answer --port 5070 --say 'Hello, you have reached us.'"
        "\n\n  mr-qwen3tts answer --file opening-hours.txt --barge-in --record calls.wav"
        "\n\n  mr-qwen3tts answer --stdin --record call.wav\n\n"
        "  mr-qwen3tts answer --host 192.0.2.7 --port 5060"
        " --llm http://127.0.0.1:11434/v1 --model llama3.2"
    )(with_manner(answer))


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
    barge_in: options.BargeIn = False,
    host: options.SipHost = "127.0.0.1",
    port: options.SipPort = 5060,
    user: options.SipUser = None,
    password_env: options.PasswordEnv = "MR_QWEN3TTS_SIP_PASSWORD",
    registrar: options.Registrar = None,
    *,
    manner: Manner,
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
    course = Course(checked_digits(dtmf), max_seconds, barge_in)
    telephone = Telephone(
        host=host,
        port=port,
        user=user,
        password_env=password_env,
        registrar=registrar,
        record=record,
        latency_log=latency_log,
        manner=manner,
    )
    telephone.check()
    run(attend(telephone, words, course, once or words.once, server))


async def attend(
    telephone: Telephone,
    words: Words,
    course: Course,
    once: bool,
    server: str | None,
) -> None:
    """Answer calls, each on its own; with ``once`` the error of the one call is raised."""
    with needs("phone"):
        from qwen3tts_phone.phone import Phone
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(speech_server(server))
        manner = await telephone.manner.voiced_at(url)
        settings = telephone.settings(url, manner, max_calls=1 if once else 200)
        phone = await stack.enter_async_context(Phone(settings))
        tell_ignored(phone.ignored)
        note(f"Waiting for calls at {shown_uri(phone.uri, telephone.host)}.")
        if is_loopback(telephone.host):
            note(f"Only this machine can call. For others: --host {local_address()}")
        group = await stack.enter_async_context(asyncio.TaskGroup())
        async for incoming in phone.incoming():
            note(f"{incoming.remote_uri} calls.")
            if once:
                await converse(incoming, words, course)
                return
            group.create_task(guarded(incoming, words, course))


def shown_uri(uri: str, host: str) -> str:
    """The address to dial; a phone on all of this machine's addresses is shown with one of them."""
    if host not in ("0.0.0.0", "::"):
        return uri
    return f"{uri.partition('@')[0]}@{local_address()}:{uri.rpartition(':')[2]}"


async def converse(call: Call, words: Words, course: Course) -> None:
    """Answer one call and see it through."""
    await call.answer()
    await talk(call, words, course)


async def guarded(call: Call, words: Words, course: Course) -> None:
    """The same, one of several: remarks name the caller, and an error ends this call only."""
    about.set(call.remote_uri)
    try:
        await converse(call, words, course)
    except Exception as failure:
        error = first_error(failure)
        if isinstance(error, SpeechError):
            complain_of(error)
        else:
            log.exception("a call failed")
