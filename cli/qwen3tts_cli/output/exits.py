"""Exit codes and orderly end of commands."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import IntEnum
from typing import Any, TypeVar

from qwen3tts_wire.errors import BadRequest, SpeechError

T = TypeVar("T")


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1
    """Failure in progress; partial results are kept."""
    USAGE = 2
    """Invalid option, address, voice or text."""
    UNAVAILABLE = 3
    """Server, phone, model, package or port missing."""
    REFUSED = 4
    """Rejected by the other end."""
    INTERRUPTED = 130
    """Ctrl-C."""
    TERMINATED = 143
    """SIGTERM."""


class _Termination:
    """SIGTERM handler of the running subcommand."""

    def __init__(self, task: asyncio.Task[object]) -> None:
        self._task = task
        self.came = False

    def __call__(self) -> None:
        self.came = True
        self._task.cancel()


_terminate: ContextVar[_Termination | None] = ContextVar("terminate", default=None)


_BY_CODE = {
    "bad_sip": ExitCode.USAGE,
    "limit_exceeded": ExitCode.USAGE,
    "missing_extra": ExitCode.UNAVAILABLE,
    "missing_program": ExitCode.UNAVAILABLE,
    "connection_lost": ExitCode.UNAVAILABLE,
    "server_busy": ExitCode.UNAVAILABLE,
    "engine_unavailable": ExitCode.UNAVAILABLE,
    "callee_unreachable": ExitCode.UNAVAILABLE,
    "machine_answered": ExitCode.UNAVAILABLE,
    "missing_encryption": ExitCode.UNAVAILABLE,
    "address_busy": ExitCode.UNAVAILABLE,
    "port_busy": ExitCode.UNAVAILABLE,
    "model_unavailable": ExitCode.UNAVAILABLE,
    "model_stalled": ExitCode.UNAVAILABLE,
    "recogniser_unavailable": ExitCode.UNAVAILABLE,
    "recognition_failed": ExitCode.UNAVAILABLE,
    "missing_detector": ExitCode.UNAVAILABLE,
    "call_refused": ExitCode.REFUSED,
    "bad_certificate": ExitCode.REFUSED,
    "call_not_allowed": ExitCode.REFUSED,
    "transfer_failed": ExitCode.REFUSED,
    "registration_failed": ExitCode.REFUSED,
    "no_common_codec": ExitCode.REFUSED,
    "model_refused": ExitCode.REFUSED,
    "not_possible": ExitCode.REFUSED,
}


def exit_code(error: SpeechError) -> ExitCode:
    if isinstance(error, BadRequest):
        return ExitCode.USAGE
    return _BY_CODE.get(error.code, ExitCode.FAILED)


class MissingExtra(SpeechError):
    code = "missing_extra"


class CutShort(SpeechError):
    code = "cut_short"


@contextmanager
def require_extra(extra: str) -> Iterator[None]:
    """Turn missing imports into an error that names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("qwen3tts_"):
            raise
        raise MissingExtra(
            f"this needs the Python package {error.name!r}, which is not installed.",
            remedy=f"Install it with: pip install 'mr_qwen3tts[{extra}]'",
        ) from None


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a subcommand's coroutine; unwrap task group errors.

    Raises:
        SystemExit: 143 after SIGTERM, 130 after Ctrl-C.
    """
    terminate: _Termination | None = None

    async def watched() -> T:
        nonlocal terminate
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        terminate = _Termination(task)
        loop.add_signal_handler(signal.SIGTERM, terminate)
        _terminate.set(terminate)
        try:
            return await main
        finally:
            loop.remove_signal_handler(signal.SIGTERM)

    try:
        return asyncio.run(watched())
    except KeyboardInterrupt:
        raise SystemExit(ExitCode.INTERRUPTED) from None
    except asyncio.CancelledError:
        if terminate is not None and terminate.came:
            raise SystemExit(ExitCode.TERMINATED) from None
        raise
    except BaseExceptionGroup as group:
        raise first_error(group) from group


def interrupted_by() -> ExitCode:
    """Return the exit code of a subcommand that ends a cancellation by itself.

    143 after SIGTERM, else 130 (Ctrl-C); within `run` only.
    """
    terminate = _terminate.get()
    came = terminate is not None and terminate.came
    return ExitCode.TERMINATED if came else ExitCode.INTERRUPTED


@contextmanager
def at_first_sigterm(then: Callable[[], None]) -> Iterator[None]:
    """Call ``then`` at the first SIGTERM; the second ends the process.

    Effective within `run` only.
    """
    terminate = _terminate.get()
    if terminate is None:
        yield
        return
    loop = asyncio.get_running_loop()

    def first() -> None:
        loop.add_signal_handler(signal.SIGTERM, terminate)
        then()

    loop.add_signal_handler(signal.SIGTERM, first)
    try:
        yield
    finally:
        loop.add_signal_handler(signal.SIGTERM, terminate)


def first_error(error: BaseException) -> BaseException:
    """Return the first leaf of an error group, preferably a SpeechError."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    flat = [first_error(each) for each in error.exceptions]
    return next((each for each in flat if isinstance(each, SpeechError)), flat[0])
