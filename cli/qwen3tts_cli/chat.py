"""Subcommand ``chat``: a text conversation with the agent, optionally spoken to a file."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qwen3tts_cli.calls.agent import make_agent
from qwen3tts_cli.calls.call_run import CallPlan, raise_model_error
from qwen3tts_cli.calls.text import TextSource, chat_of
from qwen3tts_cli.doctor.preflight import NAME, PreflightChecks, check_chat, check_words
from qwen3tts_cli.options import common as options
from qwen3tts_cli.options.common import option_groups, speech_server
from qwen3tts_cli.options.listening import MODEL_CHECK_S, ListenOptions
from qwen3tts_cli.options.speech import SpeechOptions
from qwen3tts_cli.output.console import note, printable
from qwen3tts_cli.output.exits import require_extra, run
from qwen3tts_cli.output.writable import check_sound_file, check_writable

if TYPE_CHECKING:
    from qwen3tts_agent.turn_record import TurnRecord
    from qwen3tts_agent.typed_call import TypedCall


RATE_HZ = 24_000


FIRST_OPTIONS = (
    "--llm",
    "--model",
    "--system",
    "--greeting",
    "--prompt",
    "--speak",
    "--voice",
    "--language",
    "--key-env",
    "--conversation-log",
    "--max-seconds",
    "--server",
)


class ReplySpeaker:
    """Speaker of queued texts into an audio file, created with the first audio."""

    def __init__(self, path: Path, speech_options: SpeechOptions, server: str | None) -> None:
        self._path = path
        self._speech_options = speech_options
        self._server = server
        self._texts: asyncio.Queue[str | None] = asyncio.Queue()

    def put(self, text: str) -> None:
        if text.strip():
            self._texts.put_nowait(text)

    def end(self) -> None:
        self._texts.put_nowait(None)

    async def run(self) -> None:
        from qwen3tts_cli.output.sound import FileSink
        from qwen3tts_wire.client import Audio, SpeechClient
        from qwen3tts_wire.formats import AudioFormat

        async with AsyncExitStack() as stack:
            url = await stack.enter_async_context(speech_server(self._server))
            client = await SpeechClient.connect(url)
            stack.push_async_callback(client.close)
            speech_options = await self._speech_options.voiced(client)
            sink = FileSink(self._path, RATE_HZ)
            stack.callback(sink.close)
            samples = 0
            while (text := await self._texts.get()) is not None:
                context = await client.open(
                    voice=speech_options.voice,
                    language=speech_options.language,
                    format=AudioFormat("pcm_s16le", RATE_HZ),
                    **speech_options.options,
                )
                await context.append(text)
                await context.end()
                async for event in context:
                    if not isinstance(event, Audio):
                        continue
                    await sink.write(event.pcm)
                    samples += len(event.pcm) // 2
                    await context.report(samples)
        if samples:
            note(f"{self._path}: {samples / RATE_HZ:.1f} s at {RATE_HZ} Hz.")


PROMPT = "> "


class ChatTerminal:
    """Terminal of the chat: each input line is a caller turn.

    At a terminal a line interrupts the reply; a pipe's next line is read after it.
    """

    def __init__(self) -> None:
        self._typed = sys.stdin.isatty()
        self._in_line = False
        """Whether the agent's line is unfinished."""
        self._turn_over = asyncio.Event()
        self._replies = 0

    # --- the agent

    def show(self, text: str) -> None:
        if not self._in_line:
            text = text.lstrip()
        if text:
            self._in_line = True
            sys.stdout.write(printable(text))
            sys.stdout.flush()

    def said(self, text: str) -> None:
        if self._in_line:
            self._in_line = False
            sys.stdout.write("\n")
            sys.stdout.flush()

    def turn_over(self, _: object, turn: TurnRecord) -> None:
        if turn.error is not None:
            note(f"{turn.error.message} {turn.error.remedy}".rstrip())
        self._turn_over.set()
        if not turn.interrupted:
            self.prompt()

    def prompt(self) -> None:
        if self._typed and not self._in_line:
            sys.stdout.write(PROMPT)
            sys.stdout.flush()

    # --- the caller

    def interrupt(self, call: TypedCall) -> None:
        if call.interrupt():
            self.said("")
            note("Interrupted. Ctrl-D ends it.")
        else:
            note("Nothing to interrupt. Type something, or end with Ctrl-D.")
        self.prompt()

    async def read(self, call: TypedCall, *, greets: bool) -> None:
        """Take each line as a turn; raises BadText for input that is not UTF-8."""
        from qwen3tts_phone.call.text_sources import from_stdin

        if greets and not self._typed:
            await self._turn_over.wait()
        rest = ""
        async for text in from_stdin():
            *lines, rest = (rest + text).split("\n")
            for line in lines:
                await self._line(call, line)
        await self._line(call, rest)

    async def _line(self, call: TypedCall, line: str) -> None:
        if not line.strip():
            if self._typed and not call.speaking:
                self.prompt()
            return
        self._turn_over.clear()
        call.type(line)
        if not self._typed:
            await self._turn_over.wait()


PANEL = "Agent"


@dataclass(frozen=True, slots=True)
class ChatOptions:
    llm: Annotated[
        str,
        typer.Option(
            "--llm",
            metavar="URL",
            help="The language model: the base address of an OpenAI-compatible endpoint.",
            rich_help_panel=PANEL,
        ),
    ]
    model: options.LlmModel = "default"
    system: options.LlmSystem = ""
    prompt: Annotated[
        str,
        typer.Option(
            "--prompt",
            metavar="TEXT",
            help=(
                "First message for the model; without it and --greeting the model waits for input."
            ),
            rich_help_panel=PANEL,
        ),
    ] = ""
    key_env: options.LlmKeyEnv = "MR_QWEN3TTS_LLM_KEY"
    greeting: Annotated[
        str,
        typer.Option(
            "--greeting", metavar="TEXT", help="The agent's greeting.", rich_help_panel=PANEL
        ),
    ] = ""
    conversation_log: Annotated[
        Path | None,
        typer.Option(
            "--conversation-log",
            dir_okay=False,
            help="Append one JSON line per turn, without text.",
            rich_help_panel=PANEL,
        ),
    ] = None
    check_seconds: Annotated[
        float,
        typer.Option(
            min=0,
            help="Timeout of the model check before the chat; 0 = no check.",
            rich_help_panel=PANEL,
        ),
    ] = MODEL_CHECK_S
    max_seconds: options.MaxSeconds = None
    speak: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=(
                "Speak the agent's replies into this file; format by its suffix: .wav,"
                " .flac, .mp3, .ogg or .opus."
            ),
            dir_okay=False,
            rich_help_panel="Voice",
        ),
    ] = None


def add_to(app: typer.Typer) -> None:
    app.command(
        epilog="Examples:\n\n  mr-qwen3tts chat --llm http://127.0.0.1:11434/v1 --model llama3.2"
        " --system 'You answer the telephone of a bakery.' --greeting 'Bakery Miller!'\n\n"
        "  echo 'When do you open?' | mr-qwen3tts chat --llm http://127.0.0.1:11434/v1"
        " --model llama3.2\n\n"
        "  mr-qwen3tts chat --llm http://127.0.0.1:11434/v1 --model llama3.2 --speak replies.wav"
    )(option_groups(talk=ChatOptions, speech_options=SpeechOptions)(chat))


@dataclass(frozen=True, slots=True)
class ChatRequest:
    words: TextSource
    plan: CallPlan
    speak: Path | None
    speech_options: SpeechOptions
    server: str | None


def chat(
    talk: ChatOptions,
    speech_options: SpeechOptions,
    *,
    server: options.Server = None,
) -> None:
    """[bold]Chat[/bold] with an agent as callers do: type, and read the replies.

    Ctrl-C interrupts a reply, Ctrl-D ends the chat.
    """
    words = TextSource(
        chat=chat_of(talk.llm, talk.model, talk.key_env), system=talk.system, prompt=talk.prompt
    )
    check_writable("--conversation-log", talk.conversation_log)
    check_sound_file("--speak", talk.speak, "server")
    listening = ListenOptions(
        greeting=talk.greeting or None,
        conversation_log=talk.conversation_log,
        check_seconds=talk.check_seconds,
    )
    check_words(words, listening)
    plan = CallPlan(max_seconds=talk.max_seconds, listening=listening)
    run(run_chat(ChatRequest(words, plan, talk.speak, speech_options, server)))


async def run_chat(asked: ChatRequest) -> None:
    """Chat to the end of input, or until the agent hangs up; raises SpeechError."""
    with require_extra("phone"):
        from qwen3tts_agent.typed_call import TypedCall
    words, plan = asked.words, asked.plan
    assert words.chat is not None
    async with PreflightChecks() as ready:
        if plan.listening.check_seconds:
            ready.start(NAME, check_chat(words.chat, plan.listening.check_seconds))
        await ready.finish()
    terminal = ChatTerminal()
    async with AsyncExitStack() as stack:
        agent = await stack.enter_async_context(make_agent(words, plan, on_turn=terminal.turn_over))
        # Who reads and types takes longer than who hears and speaks.
        agent.settings = replace(agent.settings, quiet_s=0.0)
        spoken = OptionalSpeaker(asked)
        call = TypedCall(terminal.show, on_said=lambda text: spoken.said(terminal, text))
        note("Type what the caller says. Ctrl-C interrupts the agent, Ctrl-D ends the chat.")
        greets = bool(plan.listening.greeting or words.prompt)
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


class OptionalSpeaker:
    def __init__(self, asked: ChatRequest) -> None:

        self._replies = (
            None
            if asked.speak is None
            else ReplySpeaker(asked.speak, asked.speech_options, asked.server)
        )
        self._task = None if self._replies is None else asyncio.create_task(self._replies.run())

    def said(self, terminal: ChatTerminal, text: str) -> None:
        terminal.said(text)
        if self._replies is not None:
            self._replies.put(text)

    async def finish(self) -> None:
        """Wait until the file is complete; raises the voice's error."""
        if self._replies is not None and self._task is not None:
            self._replies.end()
            await self._task
