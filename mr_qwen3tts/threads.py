"""Blocking work in its own thread.

A hanging file system would fill asyncio's pool and delay the host's stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


async def in_thread(work: Callable[[], Value]) -> Value:
    """Run ``work``; a cancelled caller leaves the thread behind."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Value] = loop.create_future()

    def give(value: Value | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        value, failure = None, None
        try:
            value = work()
        except BaseException as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: no waiter is left
            loop.call_soon_threadsafe(give, value, failure)

    threading.Thread(target=run, name="qwen3tts: blocking work", daemon=True).start()
    return await answer
