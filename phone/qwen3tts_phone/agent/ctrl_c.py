"""Ctrl-C in a program whose main task serves calls."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """Let the first Ctrl-C end the block without an error, in the task that `asyncio.run` runs.

    Python would cancel that task, and raise KeyboardInterrupt at its end. In any other task, and
    where the program handles SIGINT itself, nothing is changed: only the program knows then what
    else is to end.
    """
    current = asyncio.current_task()
    assert current is not None
    task: asyncio.Task[Any] = current
    before = signal.getsignal(signal.SIGINT)
    # asyncio.Runner's handler is a partial that names its task.
    if getattr(before, "keywords", {}).get("main_task") is not task:
        yield
        return
    loop = asyncio.get_running_loop()
    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        if interrupted:
            raise KeyboardInterrupt
        interrupted = True
        task.cancel()

    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        yield
    except asyncio.CancelledError:
        if not interrupted or task.uncancel() > 0:
            raise
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
