"""Threads of their own for the system's resolver, bounded in number, in queue and in time."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

THREADS = 4
"""Look-ups of one pool that are under way at a time."""
WAITING = 64
"""Look-ups that wait for a thread; one more is refused."""


class LookupThreads:
    """A pool for work that cannot be interrupted, such as ``getaddrinfo``.

    Names of strangers may take as long as their servers like. Here they keep only each other
    waiting: the default executor of the event loop, and other pools, stay free.
    """

    def __init__(self, threads: int = THREADS, waiting: int = WAITING) -> None:
        self._threads = threads
        self._most = threads + waiting
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._pending: dict[Hashable, Future[Any]] = {}
        self._askers: Counter[Hashable] = Counter()

    async def run(self, key: Hashable, work: Callable[[], T], within_s: float) -> T:
        """Do the work in a thread; where it is under way for that key, wait for its result.

        Raises OSError where too much waits already, or when the seconds are over. A thread that
        has begun goes on then and keeps its place; work that has not begun is left out.
        """
        future = self._begun(key, work)
        self._askers[key] += 1
        try:
            async with asyncio.timeout(within_s):
                result: T = await asyncio.shield(asyncio.wrap_future(future))
                return result
        except TimeoutError as error:
            raise OSError(f"no answer within {within_s:g} s") from error
        finally:
            self._askers[key] -= 1
            if not self._askers[key]:
                del self._askers[key]
                future.cancel()

    def _begun(self, key: Hashable, work: Callable[[], Any]) -> Future[Any]:
        with self._lock:
            known = self._pending.get(key)
            if known is not None and not known.cancelled():
                return known
            if len(self._pending) >= self._most:
                raise OSError(f"{self._most} names are being looked up already")
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="SIP names")
            future = self._pending[key] = self._pool.submit(work)
        future.add_done_callback(functools.partial(self._done, key))
        return future

    def close(self) -> None:
        """Begin nothing more; what is under way is not waited for."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def _done(self, key: Hashable, future: Future[Any]) -> None:
        # In the thread that ended it.
        with self._lock:
            if self._pending.get(key) is future:
                del self._pending[key]
