"""Checks that run side by side before a call, and are reported in one line each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import TypeVar

from qwen3tts_cli.output import complain_of, note, notes, sentence
from qwen3tts_cli.progress import Stages
from qwen3tts_wire.errors import SpeechError

T = TypeVar("T")


class Readiness:
    """Checks under way; an async context manager that ends those that are left.

    Args:
        goes_on: whether a failure that may pass by itself is reported and no error: a service that
            takes calls may start before its language model does.
    """

    def __init__(self, *, goes_on: bool = False) -> None:
        self._goes_on = goes_on
        self._checks: dict[str, asyncio.Task[str]] = {}
        self._optional: set[str] = set()

    async def __aenter__(self) -> Readiness:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._checks.values():
            task.cancel()
        await asyncio.gather(*self._checks.values(), return_exceptions=True)

    def start(
        self, name: str, check: Coroutine[None, None, str], *, optional: bool = False
    ) -> None:
        """Begin a check; it returns its finding, or raises SpeechError.

        ``optional``: its failure is reported, and is no error.
        """
        if optional:
            self._optional.add(name)
        self._checks[name] = asyncio.create_task(check, name=f"check: {name}")

    async def also(self, step: Awaitable[T]) -> T:
        """Take a step of the start; where it fails, the checks' errors are reported beside its own.

        Raises what ``step`` raises.
        """
        try:
            return await step
        except SpeechError:
            for name, failure in (await self._errors()).items():
                _report_failure(name, failure)
            raise

    async def finish(self) -> set[str]:
        """Wait for all checks and report each; the names of those whose failure is no error.

        Raises:
            SpeechError: the first failure; further ones were reported.
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
            complain_of(error)
        if fatal:
            raise fatal[0]
        return passed_over

    async def _errors(self) -> dict[str, SpeechError]:
        """Wait for all; the failures by their checks' names. A defect is raised."""
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
