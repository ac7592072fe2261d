"""Live view of ``latency --follow``: a screen at a terminal, else lines."""

from __future__ import annotations

import os
import select
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from qwen3tts_cli.latency import show, tables
from qwen3tts_cli.latency.columns import columns_of
from qwen3tts_cli.latency.following import CHUNK_BYTES, MAX_UTTERANCES, LineSplitter, LogFollower
from qwen3tts_cli.latency.reading import STANDARD_INPUT
from qwen3tts_cli.latency.selection import Selection
from qwen3tts_cli.output.console import note, printable, results
from qwen3tts_speech.latency import Mark, UtteranceRecord

POLL_INTERVAL_S: Final = 0.25
"""File polling interval."""
INITIAL_UTTERANCES: Final = 10
"""Existing utterances printed first without a terminal."""
BAR_COLUMNS: Final = 24
FEWEST_LATEST: Final = 3


def follow(logs: Sequence[str], selection: Selection) -> None:
    """Show new utterances until a key, a signal or the end of standard input.

    Raises BadRequest for a compressed log.
    """
    standard = StandardInput() if STANDARD_INPUT in logs else None
    following = LogFollower(logs, selection, standard=standard)
    console = results()
    try:
        with _keys(standard) as keys:
            if console.is_terminal:
                _screen(following, keys, console)
            else:
                _lines(following, keys)
    finally:
        following.close()


def _screen(following: LogFollower, keys: Keys, console: Console) -> None:
    with Live(console=console, screen=True, auto_refresh=False) as live:
        changed, size = True, console.size
        while True:
            if following.poll(time.monotonic()) or changed or console.size != size:
                size = console.size
                live.update(view(following, size.width, size.height), refresh=True)
                changed = False
                if keys.pressed(0) in END:
                    break
            elif keys.pressed(POLL_INTERVAL_S) in END:
                break
    console.print(view(following, console.width, console.height))


def _lines(following: LogFollower, keys: Keys) -> None:
    before = deque[UtteranceRecord](maxlen=INITIAL_UTTERANCES)
    while found := following.poll(time.monotonic()):
        before.extend(found)
    _print_records(before)
    remarks: list[str] = []
    while keys.pressed(POLL_INTERVAL_S) not in END:
        _print_records(following.poll(time.monotonic()))
        for each in following.news:
            if each not in remarks:
                note(each)
        remarks = following.news


def _print_records(records: Sequence[UtteranceRecord] | deque[UtteranceRecord]) -> None:
    for record in records:
        typer.echo(line_of(record))


def line_of(record: UtteranceRecord) -> str:
    sound = record.first_sound_ms
    parts = [
        show.clock_time(record.started_unix_s) or "no time",
        f"{record.call_id}/{record.context}",
        "no sound" if sound is None else f"first sound after {sound:.1f} ms",
    ]
    wait = record.between_ms(Mark.SPEECH_END, Mark.FIRST_AUDIBLE_WIRE)
    if wait is not None:
        parts.insert(2, f"the caller waited {wait:.1f} ms")
    if record.starvations:
        parts.append(f"gaps {record.starvations}, longest {record.longest_gap_ms:.1f} ms")
    if record.silence_ms is not None:
        parts.append(f"silent after {record.silence_ms:.1f} ms")
    parts += [record.end_reason or "open", f"{record.engine} {record.voice}".strip()]
    return printable("  ".join(part for part in parts if part).replace("\n", " "))


def view(following: LogFollower, width: int, height: int) -> RenderableType:
    """Return the screen, within ``height`` if tables fit."""
    columns = columns_of(following.last)
    files = following.files
    title = files[0] if len(files) == 1 else f"{len(files)} logs"
    head = Text(printable(title), style="bold", no_wrap=True, overflow="ellipsis")
    head.append(f"   {following.seen} utterances", style="default")
    if following.seen > len(following.last):
        head.append(f", figures of the last {MAX_UTTERANCES}")
    head.append("   q ends", style="dim")
    parts: list[RenderableType] = [head]
    if rows := tables.headlines(columns):
        parts.append(show.table("", rows, width))
        parts.append(Text(show.sentences(tables.summary(columns))[1], style="dim"))
    notices = _notices(following)
    used = 4 + len(rows) + 3 + len(notices) + 2
    if rows and height - used - (len(tables.stages(columns)) + 4) >= FEWEST_LATEST + 2:
        stages = tables.stages(columns)
        parts.append(show.table("Stages (ms)", stages, width))
        used += len(stages) + 5
    parts.append(_latest(following, width, max(FEWEST_LATEST, height - used)))
    parts += [Text(printable(each), style="yellow") for each in notices]
    return Group(*parts)


def _latest(following: LogFollower, width: int, count: int) -> RenderableType:
    latest = list(following.last)[-count:][::-1]
    if not latest:
        return Text("No utterance yet.")
    longest = max((record.first_sound_ms or 0.0 for record in latest), default=0.0)
    shown = Table.grid(padding=(0, 2))
    shown.add_column(no_wrap=True)
    shown.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    shown.add_column(no_wrap=True, justify="right")
    shown.add_column(no_wrap=True)
    shown.add_column(no_wrap=True, style="red")
    shown.width = width
    for record in latest:
        sound = record.first_sound_ms
        cells = max(0, round(BAR_COLUMNS * (sound or 0.0) / longest)) if longest > 0 else 0
        troubles = [f"{record.starvations} gaps"] if record.starvations else []
        if record.end_reason not in ("text_end", "interrupted", ""):
            troubles.append(record.end_reason)
        shown.add_row(
            show.clock_time(record.started_unix_s)[11:19],
            Text(printable(f"{record.call_id}/{record.context}".replace("\n", " "))),
            "no sound" if sound is None else f"{sound:.0f} ms",
            "█" * min(cells, BAR_COLUMNS) or " ",
            Text(printable(" ".join(troubles).replace("\n", " "))),
        )
    return shown


def _notices(following: LogFollower) -> list[str]:
    remarks = following.news
    if following.damaged:
        remarks.append(f"{following.damaged} lines are no utterances.")
    if following.newer:
        remarks.append(f"{following.newer} utterances were written by a newer version.")
    return remarks


END: Final = frozenset(("q", "Q", "\x1b", "end"))
"""End of standard input."""


class StandardInput:
    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = sys.stdin.fileno() if descriptor is None else descriptor
        self.lines = LineSplitter()
        self.news: list[str] = []
        self.ended = False

    def poll(self) -> list[bytes]:
        """Return available lines without waiting."""
        if self.ended or not select.select([self.descriptor], [], [], 0)[0]:
            return []
        data = os.read(self.descriptor, CHUNK_BYTES)
        if data:
            return self.lines.feed(data)
        self.ended = True
        return self.lines.end()

    def close(self) -> None: ...


class Keys:
    """Waits for a key, piped input, or a timeout."""

    def __init__(self, terminal: int | None, standard: StandardInput | None) -> None:
        self._terminal = terminal
        self._standard = standard

    def pressed(self, timeout_s: float) -> str:
        """Return the key, ``end`` at end of input, or an empty text."""
        if self._standard is not None and self._standard.ended:
            return "end"
        awaited = [self._terminal] if self._terminal is not None else []
        if self._standard is not None:
            awaited.append(self._standard.descriptor)
        ready = select.select(awaited, [], [], timeout_s)[0]
        if self._terminal is None or self._terminal not in ready:
            return ""
        key = os.read(self._terminal, 64)
        # An arrow begins with an escape, too; alone it is the key.
        return "end" if not key else key.decode("latin-1")[: 1 if key[:1] != b"\x1b" else 3]


@contextmanager
def _keys(standard: StandardInput | None) -> Iterator[Keys]:
    try:
        import termios
        import tty
    except ImportError:  # not on this system
        yield Keys(None, standard)
        return
    if standard is not None or not sys.stdin.isatty() or not sys.stdout.isatty():
        yield Keys(None, standard)
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield Keys(terminal, standard)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
