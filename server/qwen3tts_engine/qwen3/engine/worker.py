"""Engine loop: one thread for all generations. No torch.

A turn launches the plan, then collects the turn before: the device always has work queued.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from qwen3tts_engine.qwen3.engine.batch import Batch
from qwen3tts_engine.qwen3.engine.jobs import IN_SLOT, Job, JobEvent, JobState
from qwen3tts_engine.qwen3.kernels.step_runner import PrefixCache, StepRunner
from qwen3tts_engine.scheduler import Scheduler
from qwen3tts_wire.errors import EngineFailed, EngineUnavailable, SpeechError

if TYPE_CHECKING:
    from qwen3tts_engine.qwen3.model.prompt import Prompt

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    code_eos: int
    """EOS of code 0."""
    dry_timeout_s: float = 2.0
    """Live text ends after this time without text."""
    unread_samples: int = 48_000
    """Backpressure: a row pauses at this many unread samples."""


_Decodes = Sequence[tuple[Job, int]]
"""Job of a sound, and its number of frames."""


class Worker:
    """``submit``, ``cancel``, ``wake`` and ``close`` are thread-safe."""

    def __init__(
        self,
        runner: StepRunner,
        scheduler: Scheduler,
        settings: WorkerSettings,
        *,
        embed: Callable[[Prompt, Any | None], Any],
        prefixes: PrefixCache,
        clock: Callable[[], float],
    ) -> None:
        self._runner = runner
        self._scheduler = scheduler
        self.settings = settings
        self._clock = clock
        self._batch = Batch(
            runner,
            scheduler,
            code_eos=settings.code_eos,
            embed=embed,
            prefixes=prefixes,
            clock=clock,
        )
        self._inbox: deque[tuple[bool, Job]] = deque()
        self._idle_work: deque[tuple[Callable[[], None], Future[None]]] = deque()
        self._changed = threading.Condition()
        self._woken = False
        self._over: SpeechError | None = None
        """Reason to end ``run``."""
        self._gone = False
        """True if the inbox is no longer read."""

    @property
    def under_way(self) -> int:
        return len(self._batch.jobs) + len(self._inbox)

    # --- any thread ---

    def submit(self, job: Job) -> None:
        if job.track.source is not None:
            job.track.source.on_change = self.wake
        if job.lead is not None:
            job.lead.on_change = self.wake
        self._tell((True, job))

    def cancel(self, job: Job) -> None:
        self._tell((False, job))

    def when_idle(self, work: Callable[[], None]) -> Future[None]:
        done: Future[None] = Future()
        with self._changed:
            gone = self._gone
            if not gone:
                self._idle_work.append((work, done))
        if gone:
            done.set_exception(self._over or EngineFailed("The engine was closed."))
        self.wake()
        return done

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify()

    def close(self) -> None:
        self._end(EngineFailed("The engine was closed while it spoke."))

    def _end(self, reason: SpeechError) -> None:
        with self._changed:
            self._over = self._over or reason
            self._changed.notify()

    def _tell(self, event: tuple[bool, Job]) -> None:
        with self._changed:
            if not self._gone:
                self._inbox.append(event)
                self._woken = True
                self._changed.notify()
                return
        new, job = event
        if new and self._over is not None:
            job.output.finish(self._over)

    # --- the engine's thread ---

    def run(self) -> None:
        try:
            with self._runner.running():
                self._run()
        finally:
            # In any case, fail everything that waits.
            self._wind_up()

    def _run(self) -> None:
        while self._over is None:
            wake = self.turn(self._clock())
            with self._changed:
                if not self._woken and self._over is None:
                    # Wait for an event, or until the next turn is due.
                    self._changed.wait(None if wake is None else max(0.0, wake - self._clock()))
                self._woken = False

    def _wind_up(self) -> None:
        with self._changed:
            self._over = self._over or EngineFailed(
                "The engine broke off.", remedy="Restart the server; its log has the reason."
            )
            self._gone = True
        self._batch.jobs += [job for new, job in self._inbox if new]
        self._batch.abandon(self._over)
        for _, done in self._idle_work:
            if done.set_running_or_notify_cancel():
                done.set_exception(self._over)

    def turn(self, now: float) -> float | None:
        """Run one iteration; return when the next is due (None: at an event)."""
        try:
            return self._turn(now)
        except Exception as error:
            try:
                self._batch.recover(error)
            except Exception:
                log.exception("the device did not recover")
                message = "The engine's device failed and did not recover."
                self._end(EngineUnavailable(message, remedy="Restart the server."))
            return now

    def _turn(self, now: float) -> float | None:
        batch = self._batch
        self._take_events()
        while self._idle_work and not batch.jobs:
            _run_idle_work(*self._idle_work.popleft())
        for job in list(batch.jobs):
            self._check(job, now)
        before = batch.steps_under_way
        plan = self._scheduler.plan(now)
        steps = cast("Sequence[Job]", plan.steps)
        batch.prefill(cast("Sequence[Job]", plan.prefills))
        batch.decode(cast("_Decodes", plan.decodes))
        batch.step(steps)
        if any(not job.decodes_launched for job in steps):
            # A generation's first sound does not wait for the next turn.
            batch.decode(cast("_Decodes", self._scheduler.decodes_now(now)))
        batch.collect(before, all_sound=not plan and not batch.steps_under_way)
        if plan or batch.waits:
            return now
        wakes = [self._scheduler.next_wake(now), *map(self._timeout_at, self._batch.jobs)]
        return min((each for each in wakes if each is not None), default=None)

    def _take_events(self) -> None:
        while self._inbox:
            new, job = self._inbox.popleft()
            if new:
                self._batch.jobs.append(job)
            elif job.state is not JobState.DONE:
                self._batch.release(job)

    # --- text and readers ---

    def _check(self, job: Job, now: float) -> None:
        if job.output.gone:
            self._batch.release(job)
            return
        try:
            if job.track.pull():
                job.starved_since = None
                self._on_text(job, now)
            elif job.state is JobState.OPENING:
                self._on_text(job, now)
            if self._is_starved(job):
                job.starved_since = now if job.starved_since is None else job.starved_since
                if now - job.starved_since >= self.settings.dry_timeout_s:
                    job.track.time_out()
                    self._on_text(job, now)
        except Exception as error:
            self._batch.fail_row(job, error)
        if job.state in IN_SLOT:
            held = job.output.unread >= self.settings.unread_samples
            if held is not job.held:
                job.held = held
                self._scheduler.held(job, held)

    def _on_text(self, job: Job, now: float) -> None:
        track = job.track
        if job.state is not JobState.OPENING:
            self._batch.feed(job)
        elif track.ready:
            job.prompt = job.lay_out(track)
            self._scheduler.admit(
                job, job.lead, now, initial_chunk=job.initial_chunk, speed=job.speed
            )
            job.move(JobEvent.ADMIT)
            self._batch.feed(job)
        elif track.ended:
            job.end = "dry" if track.timed_out else "text_end"
            self._batch.finish(job, silent=not track.timed_out)

    def _is_starved(self, job: Job) -> bool:
        return job.track.live and (job.state is JobState.OPENING or not job.has_text)

    def _timeout_at(self, job: Job) -> float | None:
        if job.starved_since is None or not self._is_starved(job):
            return None
        return job.starved_since + self.settings.dry_timeout_s


def _run_idle_work(work: Callable[[], None], done: Future[None]) -> None:
    if not done.set_running_or_notify_cancel():
        return
    try:
        work()
    except Exception as error:
        done.set_exception(error)
    else:
        done.set_result(None)
