"""Functions of the program's that may block, each in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any


class TooManyThreads(RuntimeError):
    """As many run as may; those that hang count, too."""


class BoundedThreads:
    """Threads that keep neither the event loop waiting nor the program from ending.

    Args:
        name: of each thread.
        most: at a time.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self.running = 0

    async def run(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
        """What the function gives. Cancelled, it leaves the thread to itself, and drops its answer.

        Raises:
            TooManyThreads: one more may not be begun.
            Exception: what the function raises.
        """
        if self.running >= self._most:
            raise TooManyThreads(f"{self.running} functions have not ended.")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        def settle(value: Any, error: Exception | None) -> None:
            self.running -= 1
            if done.done():
                return
            if isinstance(error, StopIteration):
                error = RuntimeError("the function raised StopIteration")
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(value)

        def work() -> None:
            value, failed = None, None
            try:
                value = function(*args, **named)
            except BaseException as error:
                failed = error if isinstance(error, Exception) else RuntimeError(repr(error))
            # Where the program's loop is closed, nobody waits for it.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, value, failed)

        self.running += 1
        threading.Thread(target=work, name=self._name, daemon=True).start()
        return await done
