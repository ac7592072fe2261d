"""Subcommand ``say``: streamed text to an audio file or the loudspeaker."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qwen3tts_cli.doctor.preflight import check_file
from qwen3tts_cli.options import common as options
from qwen3tts_cli.options.common import option_groups, speech_server
from qwen3tts_cli.options.speech import SpeechOptions, note_ignored_options, note_text_mode
from qwen3tts_cli.output.console import note, notes
from qwen3tts_cli.output.exits import CutShort, run
from qwen3tts_cli.output.keyboard import from_keyboard, typed_by_person
from qwen3tts_cli.output.sound import AudioSink, FileSink, PipeSink
from qwen3tts_cli.output.writable import check_sound_file

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from qwen3tts_wire.client import Context, SpeechClient
    from qwen3tts_wire.formats import AudioFormat

PASSAGE_CHARS = 20_000
"""Target length of a context; longer text is split at line ends."""
LONGEST_PASSAGE_CHARS = 50_000
"""Split without a line end."""
REPORT_S = 0.1
"""Interval of playback reports to the server."""


FIRST_OPTIONS = (
    "--play",
    "--out",
    "--file",
    "--voice",
    "--language",
    "--speed",
    "--rate",
    "--server",
    "--clone",
    "--ref-text",
    "--instructions",
    "--mode",
)


@dataclass(frozen=True, slots=True)
class SayOptions:
    speech_options: SpeechOptions
    rate_hz: int
    bar: bool = True
    """Whether progress is shown in place; not while typing."""


def add_to(app: typer.Typer) -> None:
    app.command(
        epilog="Examples:\n\n  mr-qwen3tts say 'Good morning.' --play\n\n"
        "  mr-qwen3tts say --file letter.txt --out letter.wav --rate 8000\n\n"
        "  llm 'Tell me a story' | mr-qwen3tts say - --play\n\n"
        "  mr-qwen3tts say 'With my own voice.' --clone me.wav --ref-text 'What I say in it.'"
        " --play --server ws://127.0.0.1:8765/v1/speech"
    )(option_groups(speech_options=SpeechOptions)(say))


def say(
    text: Annotated[
        str | None,
        typer.Argument(metavar="TEXT|-", help="Text; - is standard input, as it arrives."),
    ] = None,
    file: Annotated[Path | None, typer.Option(metavar="FILE", help="Speak this text file.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help=(
                "Output file; format by its suffix: .wav, .flac, .mp3, .ogg or .opus. - is"
                " WAV on standard output."
            ),
        ),
    ] = None,
    play: Annotated[bool, typer.Option("--play", "-p", help="Play while synthesising.")] = False,
    rate: Annotated[int, typer.Option(help="Sample rate in hertz: 24000, 16000, 8000.")] = 24_000,
    *,
    speech_options: SpeechOptions,
    server: options.Server = None,
) -> None:
    """Speak a text to a [bold]file[/bold] or the [bold]loudspeaker[/bold]."""
    if (text is None) == (file is None):
        raise typer.BadParameter("give a text, - for standard input, or --file.")
    if out is None and not play:
        raise typer.BadParameter("give --out FILE or --play.")
    if rate not in (24_000, 16_000, 8_000):
        raise typer.BadParameter("--rate is 24000, 16000 or 8000.")
    if out is not None and str(out) == "-" and sys.stdout.isatty():
        raise typer.BadParameter("audio is not written to a terminal: pipe standard output.")
    if out is not None and str(out) != "-":
        check_sound_file("--out", out, "server")
    if file is not None:
        check_file(file)
    words, total_chars = _words(text, file)
    bar = not (text == "-" and typed_by_person())
    run(say_words(words, SayOptions(speech_options, rate, bar), server, out, play, total_chars))


def _words(text: str | None, file: Path | None) -> tuple[AsyncIterator[str], int | None]:
    from qwen3tts_phone.call.text_sources import from_file, from_text

    if file is not None:
        return from_file(file), file.stat().st_size or None
    if text == "-":
        return from_keyboard(), None
    assert text is not None
    return from_text(text), len(text)


async def say_words(
    words: AsyncIterator[str],
    how: SayOptions,
    server: str | None,
    out: Path | None,
    play: bool,
    total_chars: int | None,
) -> None:
    """Speak all of ``words``; audio before an error is kept."""
    from qwen3tts_speech.link import RESUME
    from qwen3tts_wire.client import SpeechClient

    async with AsyncExitStack() as stack:
        sinks: list[AudioSink] = []
        if play:
            from qwen3tts_speech.player import open_player

            player = await open_player(how.rate_hz)
            stack.push_async_callback(player.stop)
            sinks.append(player)
        url = await stack.enter_async_context(speech_server(server))
        client = await SpeechClient.connect(url, resume=None if server is None else RESUME)
        stack.push_async_callback(client.close)
        how = replace(how, speech_options=await how.speech_options.voiced(client))
        if out is not None:
            sinks.append(_opened(out, how.rate_hz, stack))
        progress = stack.enter_context(_progress(how.bar))
        speech = SpokenText(
            client, how, sinks, progress, progress.add_task("0.0 s", total=total_chars)
        )
        stack.callback(speech.report, out)
        await speech.say(words)
        for each in sinks:
            await each.finish()


def _opened(out: Path, rate_hz: int, stack: AsyncExitStack) -> AudioSink:
    if str(out) == "-":
        return PipeSink(rate_hz)
    file = FileSink(out, rate_hz)
    stack.callback(file.close)
    return file


class SpokenText:
    def __init__(
        self,
        client: SpeechClient,
        how: SayOptions,
        sinks: list[AudioSink],
        progress: Progress,
        task: TaskID,
    ) -> None:
        self._client = client
        self._how = how
        self._sinks = sinks
        self._progress = progress
        self._task = task
        self._chars_before = 0
        self._noted = False
        self.samples = 0
        """Written so far."""

    async def say(self, words: AsyncIterator[str]) -> None:
        passages = Passages(words)
        while await passages.more():
            speech_options = self._how.speech_options
            context = await self._client.open(
                voice=speech_options.voice,
                language=speech_options.language,
                format=_pcm(self._how.rate_hz),
                **speech_options.options,
            )
            async with asyncio.TaskGroup() as group:
                feed = group.create_task(_feed(context, passages))
                await self._receive(context)
                feed.cancel()
            self._chars_before = passages.chars
        if not self.samples:
            raise CutShort("the text has nothing speakable.", remedy="Give some text to speak.")

    async def _receive(self, context: Context) -> None:
        from qwen3tts_wire.client import Alignment, Audio, Started

        taken = reported = 0
        async for event in context:
            match event:
                case Started(mode=mode, ignored=ignored) if not self._noted:
                    self._noted = True
                    note_ignored_options(ignored)
                    note_text_mode(self._how.speech_options.mode, mode)
                case Audio(pcm=pcm):
                    for sink in self._sinks:
                        await sink.write(pcm)
                    self.samples += len(pcm) // 2
                    taken += len(pcm) // 2
                    # A file takes audio as fast as it is generated: report it as played.
                    if taken - reported >= self._how.rate_hz * REPORT_S:
                        await context.report(taken)
                        reported = taken
                    self._progress.update(
                        self._task, description=f"{self.samples / self._how.rate_hz:.1f} s"
                    )
                case Alignment(words=words) if words:
                    said = self._chars_before + words[-1].char_end
                    self._progress.update(self._task, completed=said)
                case _:
                    pass

    def report(self, out: Path | None) -> None:
        seconds = self.samples / self._how.rate_hz
        if out is not None and str(out) != "-" and self.samples:
            note(f"{out}: {seconds:.1f} s at {self._how.rate_hz} Hz.")


class Passages:
    """Text split into passages of one context each."""

    def __init__(self, words: AsyncIterator[str]) -> None:
        self._words = words
        self._next: str | None = None
        self.chars = 0
        """Characters delivered."""

    async def more(self) -> bool:
        """Wait for text; return whether a passage follows."""
        while not self._next:
            self._next = await anext(self._words, None)
            if self._next is None:
                return False
        return True

    async def passage(self) -> AsyncIterator[str]:
        """Yield the deltas of the next passage."""
        chars = 0
        while await self.more():
            delta = self._next
            assert delta is not None
            cut = _cut(delta, chars)
            self._next = delta[cut:] or None
            chars += cut
            self.chars += cut
            if cut:
                yield delta[:cut]
            if cut < len(delta) or chars >= LONGEST_PASSAGE_CHARS:
                return


def _cut(delta: str, chars: int) -> int:
    if chars + len(delta) <= PASSAGE_CHARS:
        return len(delta)
    line_end = delta.find("\n", max(0, PASSAGE_CHARS - chars))
    if line_end >= 0 and chars + line_end < LONGEST_PASSAGE_CHARS:
        return line_end + 1
    if chars + len(delta) <= LONGEST_PASSAGE_CHARS:
        return len(delta)
    room = LONGEST_PASSAGE_CHARS - chars
    return delta.rfind(" ", 0, room) + 1 or room


async def _feed(context: Context, passages: Passages) -> None:
    from qwen3tts_wire.messages import MAX_APPEND_CHARS

    async for delta in passages.passage():
        for start in range(0, len(delta), MAX_APPEND_CHARS):
            await context.append(delta[start : start + MAX_APPEND_CHARS])
    await context.end()


def _pcm(rate_hz: int) -> AudioFormat:
    from qwen3tts_wire.formats import AudioFormat

    return AudioFormat("pcm_s16le", rate_hz)


def _progress(shown: bool) -> Progress:
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = notes()
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description} of speech"),
        BarColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not (shown and console.is_terminal),
    )
