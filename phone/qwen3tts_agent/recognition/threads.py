"""Threads for functions of the program's that may block."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any


class TooManyThreads(RuntimeError):
    """Thread limit reached; hanging ones count."""


class BoundedThreads:
    """At most ``most`` daemon threads, which do not delay the exit."""

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self.running = 0

    async def run(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
        """Return the function's result; cancelled, leave the thread running.

        Raises TooManyThreads, Exception.
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
            # Once the program's loop is closed, no result is needed.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, value, failed)

        self.running += 1
        threading.Thread(target=work, name=self._name, daemon=True).start()
        return await done
