"""The two consoles: results go to standard output, everything else to standard error."""

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
"""A route of the server, which is of no use at a terminal."""
LIST_VOICES = "`mr-qwen3tts voices` lists all."
PIPE_WIDTH = 160
"""Columns where no terminal says how many there are."""


def results() -> Console:
    """Where a subcommand's result goes; a pipe gets plain text, wide enough for all tables."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(highlight=False, soft_wrap=True, width=width)


def notes() -> Console:
    """Where progress, remarks and errors go."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


about: ContextVar[str] = ContextVar("about", default="")
"""Whom the remarks of a task are about, where there are several at once."""


def note(message: str) -> None:
    """One remark for the person at the terminal."""
    with _beside_prompt():
        notes().print(Text(printable(_about() + message), style="dim"))


def result(message: str) -> None:
    """One line of a result, which may come while somebody types."""
    with _beside_prompt():
        results().print(printable(message), markup=False)


_prompt = ""


def show_prompt(text: str) -> None:
    """Show a prompt at the terminal, and again below each line that is printed meanwhile; ""
    ends it."""
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
    return f"{about.get()}: " if about.get() else ""


def complain(message: str, remedy: str = "") -> None:
    """An error in plain words: the cause, then what to do."""
    told = sentence(_about() + message)
    text = Text("Error: ", style="bold red").append(Text(told, style="default"))
    if remedy:
        text.append("\nRemedy: ", style="bold green").append(
            Text(sentence(remedy), style="default")
        )
    notes().print(text)


def complain_of(error: SpeechError) -> None:
    """The same, for an error that knows both."""
    complain(error.message, remedy_of(error))


def remedy_of(error: SpeechError) -> str:
    """Return the remedy for a command line: without routes of HTTP, with the list of voices."""
    sentences = re.split(r"(?<=[.!?]) +", error.remedy)
    kept = [each for each in sentences if not ROUTE.search(each)]
    if isinstance(error, UnknownVoice) and LIST_VOICES not in kept:
        kept.append(LIST_VOICES)
    return " ".join(kept).strip()


def sentence(text: str) -> str:
    """Printable, with a capital at the front; a name of a file or an address stays as it is."""
    text = printable(text)
    first = text.split(" ", 1)[0]
    return text[:1].upper() + text[1:] if first.isalpha() else text


def printable(text: str) -> str:
    """Without what could steer the terminal: text may come from the other end of a line."""
    return "".join(char if char.isprintable() or char == "\n" else "\ufffd" for char in text)


class LogLevel(StrEnum):
    """How much is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def configure_logging(level: LogLevel) -> None:
    """Send log messages to standard error, plainly."""
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )


class Stages:
    """Shows each stage: in place at a terminal, else a line for each. Any thread may call it."""

    def __init__(self, status: Status, *, in_place: bool | None = None) -> None:
        """``in_place`` None: as standard error is a terminal."""
        self._status = status
        self._in_place = notes().is_terminal if in_place is None else in_place
        self._last = ""

    def __call__(self, what: str, done: int, of: int) -> None:
        """``done`` of ``of`` parts of ``what`` are done."""
        what = what[:1].upper() + what[1:]
        if self._in_place:
            self._status.update(f"{what} … {done} of {of}" if of > 1 else f"{what} …")
        elif what != self._last:
            note(f"{what} …")
        self._last = what

    def stop(self) -> None:
        """It has started."""
        self._status.stop()
