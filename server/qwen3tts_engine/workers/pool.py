"""Pool of worker processes: most urgent first, lost ones replaced."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from qwen3tts_engine.base import PcmChunk
from qwen3tts_engine.playout import PlayoutLead
from qwen3tts_engine.workers.messages import Ready, Say, WordNumbers
from qwen3tts_engine.workers.process import UNREAD_S, JobOutcome, SpeechJob, Worker
from qwen3tts_wire.child.process import StartFailed
from qwen3tts_wire.errors import EngineFailed, SpeechError

log = logging.getLogger(__name__)

START_TRIES = 4
"""Tries to start a replacement before pending jobs fail; 0.1, 0.2 and 0.4 s lie between."""
FIRST_DELAY_S = 0.1
RETRY_S = 10.0
"""Time for which the pool stays smaller after a failed replacement; with no worker left, the next
request tries immediately."""


NEW_S = 0.04
"""Time in which the first sound of a new call may begin: a listener who runs dry sooner goes first,
for a gap is worse than a start that is late by one turn."""
LEAST_LEAD_S = 0.2
"""Sound ahead with which a job rests, at least: less would not let a chunk be made while another is
heard."""
NAP_S = 0.005
"""A resting job goes on at least this much later than it may."""


class _WaitingJob(NamedTuple):
    worker: asyncio.Future[Worker]
    lead: PlayoutLead | None
    number: int
    asked: float
    """When, on the clock of PlayoutLead."""

    def due(self, now: float) -> tuple[float, int]:
        if self.lead is None:
            return (0.0, self.number)
        urgency = self.lead.urgency(now)
        if not self.lead.started:
            urgency += max(0.0, NEW_S - (now - self.asked))
        return (urgency, self.number)


class WorkerPool:
    """``size`` workers; turns go to the least playout lead.

    Args:
        command: starts a worker.
        size: number of workers.
        stall_s: a worker silent for longer within a turn is replaced.
        start_s: time limit of a start.
        lead_s: lead with which a paused job rests, where its context names none; None: it never
            rests.
        on_note: receives the facts of a worker's notes.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        size: int,
        stall_s: float,
        start_s: float,
        lead_s: float | None = None,
        on_note: Callable[[Mapping[str, Any]], None] = lambda facts: None,
    ) -> None:
        self._on_note = on_note
        self._command = command
        self._lead_s = lead_s
        self._size = size
        self._stall_s = stall_s
        self._start_s = start_s
        self._workers: set[Worker] = set()
        self._idle: deque[Worker] = deque()
        self._waiting: list[_WaitingJob] = []
        self._numbers = itertools.count(1)
        self._starting: set[asyncio.Task[None]] = set()
        self._refill_at = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        self.turn = asyncio.Lock()
        """Held from chunk to chunk by a stream that takes sound as fast as it is made, one in each
        turn of the event loop: what a call waits for runs in between (benchmarks/server_load.py,
        the bulk clients)."""
        self.closed = False
        self.replaced = 0
        """Workers that were lost and replaced."""

    @property
    def pids(self) -> list[int]:
        return sorted(worker.pid for worker in self._workers)

    @property
    def idle(self) -> int:
        return len(self._idle)

    @property
    def waiting(self) -> int:
        return sum(not job.worker.done() for job in self._waiting)

    async def start(self) -> Ready:
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

    async def say(self, say: Say, lead: PlayoutLead | None = None) -> SpeechJob:
        """Wait for a worker and give it the job.

        Args:
            say: the job.
            lead: its context's playout lead, if any.

        Raises:
            EngineFailed: no worker is left or can be started, or the pool is closed.
        """
        if self.closed:
            raise EngineFailed("The engine was closed.")
        if lead is not None and self._lead_s is not None:
            loop = asyncio.get_running_loop()

            def changed() -> None:
                loop.call_soon_threadsafe(self._offer_all)

            lead.on_change = changed
        while self._idle:
            # That with the fewest jobs; among equals the longest idle.
            worker = min(self._idle, key=lambda worker: len(worker.jobs))
            self._idle.remove(worker)
            if worker.idle:
                return self._say(worker, say, lead)
        self._refill()
        future: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        job = _WaitingJob(future, lead, next(self._numbers), time.monotonic())
        self._waiting.append(job)
        try:
            worker = await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                # It got a worker in the same moment in which it was cancelled.
                self._is_idle(future.result())
            raise
        finally:
            if job in self._waiting:
                self._waiting.remove(job)
        if not worker.idle:
            return await self.say(say, lead)  # lost between the hand-over and now
        return self._say(worker, say, lead)

    def _say(self, worker: Worker, say: Say, lead: PlayoutLead | None) -> SpeechJob:
        speech = worker.say(say, lead)
        speech.on_read = self._offer_all
        return speech

    async def close(self) -> None:
        self.closed = True
        if self._alarm is not None:
            self._alarm.cancel()
        for task in self._starting:
            task.cancel()
        self._refuse_all(EngineFailed("The engine was closed."))
        await asyncio.gather(*self._starting, return_exceptions=True)
        await asyncio.gather(*(worker.close() for worker in list(self._workers)))
        self._idle.clear()

    async def _start_one(self) -> Ready:
        worker = Worker(
            self._command,
            stall_s=self._stall_s,
            on_idle=self._is_idle,
            on_gone=self._is_gone,
            on_note=self._on_note,
        )
        return await worker.start(self._start_s)

    def _is_idle(self, worker: Worker) -> None:
        if not worker.idle:
            return
        self._workers.add(worker)
        for speech in worker.jobs.values():
            if speech.paused and not speech.number:
                speech.number = next(self._numbers)
        self._waiting = [job for job in self._waiting if not job.worker.done()]
        now = time.monotonic()  # the clock of PlayoutLead
        new = min(self._waiting, key=lambda job: job.due(now), default=None)
        own = min(self._ripe(worker, now), key=lambda speech: _due(speech, now), default=None)
        if own is not None and (new is None or _due(own, now) < new.due(now)):
            own.number = 0
            worker.go(own)
        elif new is not None:
            self._waiting.remove(new)
            new.worker.set_result(worker)
        else:
            self._idle.append(worker)
            self._rest(now)

    def _ripe(self, worker: Worker, now: float) -> list[SpeechJob]:
        return [
            speech
            for speech in worker.jobs.values()
            if speech.paused and speech.unread_s < UNREAD_S and self._spare(speech, now) <= 0
        ]

    def _spare(self, speech: SpeechJob, now: float) -> float:
        target_s = self._target_s(speech)
        if target_s is None or speech.lead is None:
            return 0.0
        return speech.lead.seconds(now) + speech.unread_s - target_s

    def _target_s(self, speech: SpeechJob) -> float | None:
        if speech.lead is None or speech.lead.target_ms is None:
            return self._lead_s
        return max(LEAST_LEAD_S, speech.lead.target_ms / 1000)

    def _rest(self, now: float) -> None:
        moments = [
            now + self._spare(speech, now)
            for worker in self._idle
            for speech in worker.jobs.values()
            if speech.paused and speech.lead is not None and speech.lead.moving
        ]
        due = [moment for moment in moments if moment > now]
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if due:
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_later(min(due) - now + NAP_S, self._offer_all)

    def _offer_all(self) -> None:
        if self.closed:
            return
        for worker in list(self._idle):
            if any(speech.paused for speech in worker.jobs.values()):
                self._idle.remove(worker)
                self._is_idle(worker)

    def _is_gone(self, worker: Worker) -> None:
        self._workers.discard(worker)
        if worker in self._idle:
            self._idle.remove(worker)
        if not self.closed:
            log.warning("a speech worker (process %d) is gone; it is replaced", worker.pid)
            self.replaced += 1
            self._replace()

    def _refill(self) -> None:
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
            self._starting.discard(task)  # now, so that a caller may ask again
        if not self._workers and not self._starting:
            self._refuse_all(
                EngineFailed(
                    f"No speech worker is left and none can be started: {error}.",
                    remedy="See `mr-qwen3tts doctor`; the next request tries again.",
                )
            )

    def _refuse_all(self, error: EngineFailed) -> None:
        waiting, self._waiting = self._waiting, []
        for job in waiting:
            if not job.worker.done():
                job.worker.set_exception(error)


def _due(speech: SpeechJob, now: float) -> tuple[float, int]:
    urgency = 0.0 if speech.lead is None else speech.lead.urgency(now)
    return (urgency + speech.unread_s, speech.number)


class JobAudio(Protocol):
    def sound(self, pcm: bytes, words: tuple[WordNumbers, ...]) -> PcmChunk | None: ...

    def again(self) -> None: ...


async def speak_job(
    pool: WorkerPool,
    say: Say,
    audio: JobAudio,
    *,
    lead: PlayoutLead | None,
    attempts: int,
    refused: Callable[[SpeechJob], SpeechError],
) -> AsyncGenerator[PcmChunk, None]:
    """Speak a job and yield its chunks.

    Args:
        pool: the workers.
        say: the job.
        audio: makes chunks of the answers.
        lead: the context's playout lead.
        attempts: losses of workers before an error, counted separately before any sound.
        refused: makes the error for a refused job.

    Raises:
        EngineFailed: its workers were lost, or the pool was closed.
        SpeechError: made by ``refused``.
    """
    lost = dict.fromkeys((True, False), 0)  # by whether they had begun with it
    while True:
        begun = False
        speech = await pool.say(say, lead)
        try:
            while (sound := await speech.next()) is not None:
                begun = True
                if lead is not None and lead.unpaced:
                    async with pool.turn:
                        await asyncio.sleep(0)
                if (chunk := audio.sound(sound.pcm, sound.words)) is not None:
                    yield chunk
        finally:
            speech.stop()
        if speech.outcome is JobOutcome.SAID:
            return
        if pool.closed:
            raise EngineFailed("The engine was closed while it spoke.")
        if speech.outcome is JobOutcome.REFUSED:
            raise refused(speech)
        # A worker that had died before it was given the text says nothing about the text.
        lost[begun] += 1
        if lost[begun] >= attempts:
            raise EngineFailed(
                f"{sum(lost.values())} speech workers were lost on the same text: {speech.reason}.",
                remedy="Send it again, in other words if it fails again.",
            )
        audio.again()
