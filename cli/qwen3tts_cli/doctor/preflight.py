"""Concurrent preflight checks of a call: text, language model, recogniser, voice."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Awaitable, Coroutine, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from qwen3tts_cli.output.console import Stages, note, notes, print_speech_error, sentence
from qwen3tts_wire.errors import BadText, SpeechError

if TYPE_CHECKING:
    from qwen3tts_agent.chat.settings import ChatSettings
    from qwen3tts_cli.calls.text import TextSource
    from qwen3tts_cli.options.listening import ListenOptions


T = TypeVar("T")


class PreflightChecks:
    """Running checks; as a context manager it cancels unfinished ones.

    Args:
        goes_on: report transient failures without raising, for services.
    """

    def __init__(self, *, goes_on: bool = False) -> None:
        self._goes_on = goes_on
        self._checks: dict[str, asyncio.Task[str]] = {}
        self._optional: set[str] = set()

    async def __aenter__(self) -> PreflightChecks:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._checks.values():
            task.cancel()
        await asyncio.gather(*self._checks.values(), return_exceptions=True)

    def start(
        self, name: str, check: Coroutine[None, None, str], *, optional: bool = False
    ) -> None:
        """Start a check; an ``optional`` failure is reported only."""
        if optional:
            self._optional.add(name)
        self._checks[name] = asyncio.create_task(check, name=f"check: {name}")

    async def run_step(self, step: Awaitable[T]) -> T:
        """Await a start-up step; report the checks' errors with its failure."""
        try:
            return await step
        except SpeechError:
            for name, failure in (await self._errors()).items():
                _report_failure(name, failure)
            raise

    async def finish(self) -> set[str]:
        """Await and report all; return names of tolerated failures.

        Raises the first SpeechError.
        """
        errors = await self._errors()
        fatal: list[SpeechError] = []
        passed_over: set[str] = set()
        for name, task in self._checks.items():
            if name not in errors:
                note(f"{name}: {task.result()}")
            elif name in self._optional or (self._goes_on and errors[name].retryable):
                _report_failure(name, errors[name])
                passed_over.add(name)
            else:
                fatal.append(errors[name])
        self._checks.clear()
        for error in fatal[1:]:
            print_speech_error(error)
        if fatal:
            raise fatal[0]
        return passed_over

    async def _errors(self) -> dict[str, SpeechError]:
        """Await all; return failures by name, raise defects."""
        if self._checks:
            with notes().status("") as status:
                Stages(status)(f"checking {' and '.join(map(str.lower, self._checks))}", 0, 1)
                await asyncio.wait(self._checks.values())
        errors = {}
        for name, task in self._checks.items():
            if (error := task.exception()) is None:
                continue
            if not isinstance(error, SpeechError):
                raise error
            errors[name] = error
        return errors


def _report_failure(name: str, error: SpeechError) -> None:
    note(f"{name}: not ready. {sentence(error.message)} {sentence(error.remedy)}".rstrip())


READ_BYTES = 64 * 1024


def check_words(words: TextSource, listening: ListenOptions | None = None) -> None:
    """Refuse unspeakable text; a pipe or terminal is not read ahead.

    Raises BadText, LimitExceeded.
    """
    if words.text is not None:
        _check_text("--say", words.text)
    if words.file is not None:
        check_file(words.file)
    if words.stdin:
        _check_stdin()
    if words.chat is not None:
        # Instructions are not spoken.
        _check_encoding("--system", words.system)
        _check_encoding("--prompt", words.prompt)
    if listening is not None:
        for option, text in (("--greeting", listening.greeting), ("--filler", listening.filler)):
            if text is not None:
                _check_text(option, text)


def check_file(path: Path) -> None:
    """Read a text file; raises BadText, LimitExceeded."""
    from qwen3tts_phone.call.text_sources import file_texts

    if not is_speakable(file_texts(path)):
        raise _nothing_to_speak(str(path))


def is_speakable(texts: Iterable[str]) -> bool:
    """Return whether the normalised text has a letter or digit; reads all parts."""
    from qwen3tts_text.speakable import Speakable

    found = False

    def take(char: str, _start: int, _end: int) -> None:
        nonlocal found
        found = found or char.isalnum()

    reader = Speakable(take)
    for text in texts:
        for char in text:
            if found:
                break
            reader.feed(char)
    reader.flush()
    return found


def _check_text(option: str, text: str) -> None:
    _check_encoding(option, text)
    if not is_speakable((text,)):
        raise _nothing_to_speak(option)


def _check_encoding(option: str, text: str) -> None:
    """Refuse arguments that are not text (surrogates of PEP 383)."""
    for position, char in enumerate(text, start=1):
        if "\udc80" <= char <= "\udcff":
            raise BadText(
                f"{option} is not UTF-8 text: see character {position}.",
                remedy="Use a terminal in UTF-8, or give a file in UTF-8 with --file.",
            )


def _check_stdin() -> None:
    from qwen3tts_phone.call.text_sources import STDIN, Utf8Reader

    try:
        status = os.fstat(0)
        at = os.lseek(0, 0, os.SEEK_CUR) if stat.S_ISREG(status.st_mode) else 0
    except OSError as error:
        raise BadText(
            f"{STDIN} cannot be read: {error.strerror or error}.", remedy="Give --say or --file."
        ) from None
    if stat.S_ISCHR(status.st_mode) and not os.isatty(0) and _is_null(status):
        raise _nothing_to_speak(STDIN)
    if not stat.S_ISREG(status.st_mode):
        return
    reader = Utf8Reader(STDIN)

    def texts() -> Iterable[str]:
        place = at
        while data := os.pread(0, READ_BYTES, place):
            place += len(data)
            yield reader.push(data)
        yield reader.push(b"", final=True)

    if not is_speakable(texts()):
        raise _nothing_to_speak(STDIN)


def _is_null(status: os.stat_result) -> bool:
    return status.st_rdev == os.stat(os.devnull).st_rdev


def _nothing_to_speak(name: str) -> BadText:
    return BadText(
        f"{name} has no speakable text.",
        remedy="Give letters or digits, not only punctuation, symbols and emoji.",
    )


NAME = "Language model"


async def check_chat(settings: ChatSettings, limit_s: float) -> str:
    """Request one token; return the finding. Raises as `check_model`."""
    from qwen3tts_agent.chat.check import check_model

    found = await check_model(settings, limit_s=limit_s)
    slow = "" if found.streams else ", but it does not stream: callers wait for whole replies"
    return f"{found.model} at {found.shown} is ready{slow}."
