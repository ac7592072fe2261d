"""Some workers, given to those who wait in their order, and replaced when they are lost."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from pathlib import Path

from qwen3tts_engine.embedded.messages import Ready, Say
from qwen3tts_engine.embedded.process import Saying, StartFailed, State, Worker
from qwen3tts_wire.errors import EngineFailed

log = logging.getLogger(__name__)

START_TRIES = 4
"""Tries to start a replacement before those who wait are told; 0.1, 0.2 and 0.4 s lie between."""
FIRST_DELAY_S = 0.1
RETRY_S = 10.0
"""How long the pool stays smaller after replacing a worker has failed; with no worker left, the
next request tries at once."""


class Pool:
    """``size`` workers. Each says one piece of text at a time; who asks first is served first."""

    def __init__(
        self, library: Path, data: Path, *, size: int, stall_s: float, start_s: float
    ) -> None:
        self._library = library
        self._data = data
        self._size = size
        self._stall_s = stall_s
        self._start_s = start_s
        self._workers: set[Worker] = set()
        self._idle: deque[Worker] = deque()
        self._waiting: deque[asyncio.Future[Worker]] = deque()
        self._starting: set[asyncio.Task[None]] = set()
        self._refill_at = 0.0
        self.closed = False
        self.replaced = 0
        """Workers that were lost and replaced."""

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that can speak."""
        return sorted(worker.pid for worker in self._workers)

    @property
    def idle(self) -> int:
        """Workers without a job."""
        return len(self._idle)

    @property
    def waiting(self) -> int:
        """Jobs without a worker."""
        return sum(not future.done() for future in self._waiting)

    async def start(self) -> Ready:
        """Start all workers.

        Raises:
            StartFailed: one cannot be started; nothing of any is left.
        """
        results = await asyncio.gather(
            *(self._start_one() for _ in range(self._size)), return_exceptions=True
        )
        ready = None
        for result in results:
            if isinstance(result, BaseException):
                await self.close()
                raise result
            ready = result
        if ready is None:
            raise ValueError(f"a pool of {self._size} workers")
        return ready

    async def say(self, say: Say) -> Saying:
        """Wait for a worker and give it the job.

        Raises:
            EngineFailed: no worker is left and none can be started, or the pool is closed.
        """
        if self.closed:
            raise EngineFailed("The engine was closed.")
        while self._idle:
            worker = self._idle.popleft()
            if worker.state is State.IDLE:
                return worker.say(say)
        self._refill()
        future: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            worker = await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                # It got a worker in the same moment in which it was cancelled.
                self._is_idle(future.result())
            raise
        finally:
            if future in self._waiting:
                self._waiting.remove(future)
        if worker.state is not State.IDLE:
            return await self.say(say)  # lost between the hand-over and now
        return worker.say(say)

    async def close(self) -> None:
        """End all workers; whoever waits or listens is told."""
        self.closed = True
        for task in self._starting:
            task.cancel()
        self._refuse_all(EngineFailed("The engine was closed."))
        await asyncio.gather(*self._starting, return_exceptions=True)
        await asyncio.gather(*(worker.close() for worker in list(self._workers)))
        self._idle.clear()

    async def _start_one(self) -> Ready:
        worker = Worker(
            self._library,
            self._data,
            stall_s=self._stall_s,
            on_idle=self._is_idle,
            on_gone=self._is_gone,
        )
        return await worker.start(self._start_s)

    def _is_idle(self, worker: Worker) -> None:
        if worker.state is not State.IDLE:
            return
        self._workers.add(worker)
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(worker)
                return
        self._idle.append(worker)

    def _is_gone(self, worker: Worker) -> None:
        self._workers.discard(worker)
        if worker in self._idle:
            self._idle.remove(worker)
        if not self.closed:
            log.warning("a speech worker (process %d) is gone; it is replaced", worker.pid)
            self.replaced += 1
            self._replace()

    def _refill(self) -> None:
        """Make up for workers that could not be replaced when they were lost."""
        loop = asyncio.get_running_loop()
        if not self._workers and not self._starting:
            self._replace()
        elif loop.time() >= self._refill_at:
            for _ in range(self._size - len(self._workers) - len(self._starting)):
                self._replace()

    def _replace(self) -> None:
        task = asyncio.get_running_loop().create_task(self._start_again(), name="speech worker")
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _start_again(self) -> None:
        delay = FIRST_DELAY_S
        for left in reversed(range(START_TRIES)):
            try:
                await self._start_one()
            except StartFailed as error:
                log.warning("no speech worker could be started: %s", error)
                if left:
                    await asyncio.sleep(delay)
                    delay *= 2
                else:
                    self._give_up(error)
            else:
                return

    def _give_up(self, error: StartFailed) -> None:
        loop = asyncio.get_running_loop()
        self._refill_at = loop.time() + RETRY_S
        if (task := asyncio.current_task()) is not None:
            self._starting.discard(task)  # now, so that whoever is told may ask again
        if not self._workers and not self._starting:
            self._refuse_all(
                EngineFailed(
                    f"No speech worker is left and none can be started: {error}.",
                    remedy="See `mr-qwen3tts doctor`; the next request tries again.",
                )
            )

    def _refuse_all(self, error: EngineFailed) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(error)
