"""Consoles: results on standard output, all else on standard error."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum

from rich.console import Console
from rich.status import Status
from rich.text import Text

from qwen3tts_wire.errors import SpeechError, UnknownVoice

ROUTE = re.compile(r"\b(?:GET|POST|PUT|PATCH|DELETE|HEAD) /")
"""HTTP route in messages."""
LIST_VOICES = "`mr-qwen3tts voices` lists all."
PIPE_WIDTH = 160
"""Columns without a terminal."""


def results() -> Console:
    """Return the console of results; a pipe gets wide plain text."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(highlight=False, soft_wrap=True, width=width)


def notes() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True)


task_label: ContextVar[str] = ContextVar("about", default="")
"""Name of a concurrent task, prefixed to notes."""


def note(message: str) -> None:
    with _beside_prompt():
        notes().print(Text(printable(_about() + message), style="dim"))


def result(message: str) -> None:
    """Print a result line, also while a person types."""
    with _beside_prompt():
        results().print(printable(message), markup=False)


_prompt = ""


def show_prompt(text: str) -> None:
    """Show a prompt, repeated below printed lines; "" ends it."""
    global _prompt
    _prompt = text
    _write(text)


@contextmanager
def _beside_prompt() -> Iterator[None]:
    _write("\n" if _prompt else "")
    yield
    _write(_prompt)


def _write(text: str) -> None:
    if text:
        sys.stderr.write(text)
        sys.stderr.flush()


def _about() -> str:
    return f"{task_label.get()}: " if task_label.get() else ""


def print_error(message: str, remedy: str = "") -> None:
    shown = sentence(_about() + message)
    text = Text("Error: ", style="bold red").append(Text(shown, style="default"))
    if remedy:
        text.append("\nRemedy: ", style="bold green").append(
            Text(sentence(remedy), style="default")
        )
    notes().print(text)


def print_speech_error(error: SpeechError) -> None:
    print_error(error.message, remedy_of(error))


def remedy_of(error: SpeechError) -> str:
    """Return the remedy without HTTP routes, with the voice list."""
    sentences = re.split(r"(?<=[.!?]) +", error.remedy)
    kept = [each for each in sentences if not ROUTE.search(each)]
    if isinstance(error, UnknownVoice) and LIST_VOICES not in kept:
        kept.append(LIST_VOICES)
    return " ".join(kept).strip()


def sentence(text: str) -> str:
    """Make printable and capitalise, except file names and addresses."""
    text = printable(text)
    first = text.split(" ", 1)[0]
    return text[:1].upper() + text[1:] if first.isalpha() else text


def printable(text: str) -> str:
    """Remove terminal control characters: text may be remote."""
    return "".join(char if char.isprintable() or char == "\n" else "\ufffd" for char in text)


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def configure_logging(level: LogLevel) -> None:
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )


class Stages:
    """Progress display, thread-safe: in place at a terminal, else a line a stage."""

    def __init__(self, status: Status, *, in_place: bool | None = None) -> None:
        """``in_place`` None: if standard error is a terminal."""
        self._status = status
        self._in_place = notes().is_terminal if in_place is None else in_place
        self._last = ""

    def __call__(self, what: str, done: int, of: int) -> None:
        """Show ``done`` of ``of`` parts of ``what``."""
        what = what[:1].upper() + what[1:]
        if self._in_place:
            self._status.update(f"{what} … {done} of {of}" if of > 1 else f"{what} …")
        elif what != self._last:
            note(f"{what} …")
        self._last = what

    def stop(self) -> None:
        self._status.stop()
