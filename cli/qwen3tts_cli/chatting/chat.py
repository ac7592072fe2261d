"""``mr-qwen3tts chat``: talk to an agent by typing and reading."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from qwen3tts_cli import options
from qwen3tts_cli.agent import make_agent
from qwen3tts_cli.chatting.terminal import ChatTerminal
from qwen3tts_cli.exits import needs, run
from qwen3tts_cli.files.writable import check_sound_file, check_writable
from qwen3tts_cli.listen_options import CHECK_S, ListenOptions
from qwen3tts_cli.manner import Manner
from qwen3tts_cli.output import note
from qwen3tts_cli.readiness.model import NAME, check_chat
from qwen3tts_cli.readiness.side_by_side import Readiness
from qwen3tts_cli.readiness.texts import check_words
from qwen3tts_cli.spread import spread
from qwen3tts_cli.talk import Course, raise_model_error
from qwen3tts_cli.words import Words, choose_words

PANEL = "Agent"


def add_to(app: typer.Typer) -> None:
    """Put the subcommand into ``app``."""
    app.command(
        epilog="Examples:\n\n  mr-qwen3tts chat --llm http://127.0.0.1:11434/v1 --model llama3.2"
        " --system 'You answer the telephone of a bakery.' --greeting 'Bakery Miller!'\n\n"
        "  echo 'When do you open?' | mr-qwen3tts chat --llm http://127.0.0.1:11434/v1"
        " --model llama3.2\n\n"
        "  mr-qwen3tts chat --llm http://127.0.0.1:11434/v1 --model llama3.2 --speak replies.wav"
    )(spread(manner=Manner)(chat))


@dataclass(frozen=True, slots=True)
class Chatting:
    """What the command line says, checked."""

    words: Words
    course: Course
    speak: Path | None
    manner: Manner
    server: str | None


def chat(
    llm: Annotated[
        str,
        typer.Option(
            "--llm",
            metavar="URL",
            help="The language model: the base address of an OpenAI-compatible endpoint.",
            rich_help_panel=PANEL,
        ),
    ],
    model: options.LlmModel = "default",
    system: options.LlmSystem = "",
    prompt: Annotated[
        str,
        typer.Option(
            "--prompt",
            metavar="TEXT",
            help="What the model is to answer first; without it and --greeting it waits for you.",
            rich_help_panel=PANEL,
        ),
    ] = "",
    key_env: options.LlmKeyEnv = "MR_QWEN3TTS_LLM_KEY",
    greeting: Annotated[
        str,
        typer.Option(
            "--greeting", metavar="TEXT", help="What the agent says first.", rich_help_panel=PANEL
        ),
    ] = "",
    conversation_log: Annotated[
        Path | None,
        typer.Option(
            "--conversation-log",
            dir_okay=False,
            help="Append one line of JSON a turn; without words.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    check_seconds: Annotated[
        float,
        typer.Option(
            min=0,
            help="Time for the model's first answer, before the chat begins; 0: it is not asked.",
            rich_help_panel=PANEL,
        ),
    ] = CHECK_S,
    max_seconds: options.MaxSeconds = None,
    speak: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Speak what the agent has said into this file; its ending says the form: .wav,"
            " .flac, .mp3, .ogg or .opus.",
            dir_okay=False,
            rich_help_panel="Voice",
        ),
    ] = None,
    *,
    manner: Manner,
    server: options.Server = None,
) -> None:
    """[bold]Chat[/bold] with an agent as callers talk with it: type, and read what it says.

    Ctrl-C interrupts a reply, Ctrl-D ends the chat."""
    words = choose_words(
        say=None,
        token_ms=0.0,
        file=None,
        stdin=False,
        by_key=False,
        llm=llm,
        model=model,
        system=system,
        prompt=prompt,
        key_env=key_env,
    )
    check_writable("--conversation-log", conversation_log)
    check_sound_file("--speak", speak, "server")
    listening = ListenOptions(
        greeting=greeting or None, conversation_log=conversation_log, check_seconds=check_seconds
    )
    check_words(words, listening)
    course = Course(max_seconds=max_seconds, listening=listening)
    run(converse(Chatting(words, course, speak, manner, server)))


async def converse(asked: Chatting) -> None:
    """Chat to the end of the input, or until the agent ends it.

    Raises:
        SpeechError: the model cannot be used, or failed in all of its turns; the voice failed.
    """
    with needs("phone"):
        from qwen3tts_agent.typed_call import TypedCall
    words, course = asked.words, asked.course
    assert words.chat is not None
    async with Readiness() as ready:
        if course.listening.check_seconds:
            ready.start(NAME, check_chat(words.chat, course.listening.check_seconds))
        await ready.finish()
    terminal = ChatTerminal()
    async with AsyncExitStack() as stack:
        agent = await stack.enter_async_context(
            make_agent(words, course, on_turn=terminal.turn_over)
        )
        # Who reads and types takes longer than who hears and speaks.
        agent.settings = replace(agent.settings, quiet_s=0.0)
        spoken = Spoken(asked)
        call = TypedCall(terminal.show, on_said=lambda text: spoken.said(terminal, text))
        note("Type what the caller says. Ctrl-C interrupts the agent, Ctrl-D ends the chat.")
        greets = bool(course.listening.greeting or words.prompt)
        if not greets:
            terminal.prompt()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, terminal.interrupt, call)
        stack.callback(loop.remove_signal_handler, signal.SIGINT)
        talking = asyncio.create_task(agent.talk(call))
        await call.heard()
        reading = asyncio.create_task(terminal.read(call, greets=greets))
        try:
            await asyncio.wait({talking, reading}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await call.leave()
            conversation = await talking
            note(f"The chat has ended: {conversation.ended}.")
            await spoken.finish()
    raise_model_error(conversation)


class Spoken:
    """The voice of ``--speak``, where it is asked for."""

    def __init__(self, asked: Chatting) -> None:
        from qwen3tts_cli.chatting.spoken import SpokenReplies

        self._replies = (
            None if asked.speak is None else SpokenReplies(asked.speak, asked.manner, asked.server)
        )
        self._task = None if self._replies is None else asyncio.create_task(self._replies.run())

    def said(self, terminal: ChatTerminal, text: str) -> None:
        """An utterance has ended."""
        terminal.said(text)
        if self._replies is not None:
            self._replies.put(text)

    async def finish(self) -> None:
        """Wait until all of it is in the file; raises what the voice raises."""
        if self._replies is not None and self._task is not None:
            self._replies.end()
            await self._task
