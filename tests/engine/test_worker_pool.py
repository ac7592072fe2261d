"""The pool of workers: which job gets which worker, and what a job gives to its reader."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence

import pytest

from qwen3tts_engine.playout import UNPACED_LEAD_MS, PlayoutLead
from qwen3tts_engine.workers import pool as pool_module
from qwen3tts_engine.workers.messages import Ready, Say, Sound
from qwen3tts_engine.workers.pool import NEW_S, WorkerPool
from qwen3tts_engine.workers.process import (
    BYTES_PER_S,
    TOGETHER,
    UNREAD_S,
    JobOutcome,
    SpeechJob,
    Worker,
    WorkerState,
)
from qwen3tts_wire.child.process import StartFailed
from qwen3tts_wire.errors import EngineFailed
from tests.fakes import settle


class FakeWorker:
    """Idle once started; says what it is given until ``done``."""

    made: list[FakeWorker]
    fail: list[str]
    """Reasons for the next starts to fail."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        stall_s: float,
        on_idle: Callable[[FakeWorker], None],
        on_gone: Callable[[FakeWorker], None],
        on_note: object,
    ) -> None:
        self.on_idle, self.on_gone = on_idle, on_gone
        self.state = WorkerState.STARTING
        self.texts: list[str] = []
        self.jobs: dict[int, SpeechJob] = {}
        self.turns: list[int] = []

    @property
    def idle(self) -> bool:
        return self.state is WorkerState.IDLE

    async def start(self, timeout_s: float) -> Ready:
        await asyncio.sleep(0)
        if self.fail:
            raise StartFailed(self.fail.pop(0))
        self.made.append(self)
        self.pid = len(self.made)
        self.state = WorkerState.IDLE
        self.on_idle(self)
        return Ready({})

    def say(self, say: Say, lead: PlayoutLead | None) -> SpeechJob:
        assert self.state is WorkerState.IDLE
        self.state = WorkerState.SPEAKING
        self.texts.append(say.text)
        saying = SpeechJob(len(self.texts), lambda saying: None, lead)
        self.jobs[saying.job] = saying
        self.turns.append(saying.job)
        return saying

    def go(self, saying: SpeechJob) -> None:
        assert self.state is WorkerState.IDLE
        assert saying.paused
        self.state = WorkerState.SPEAKING
        saying.paused = False
        self.turns.append(saying.job)

    def pause(self) -> None:
        """The turn is over, its job is not."""
        self.jobs[self.turns[-1]].paused = True
        self.done_with_turn()

    def done(self) -> None:
        self.jobs.pop(self.turns[-1], None)
        self.done_with_turn()

    def done_with_turn(self) -> None:
        self.state = WorkerState.IDLE
        self.on_idle(self)

    def die(self) -> None:
        self.state = WorkerState.GONE
        self.on_gone(self)

    async def close(self) -> None:
        if self.state is not WorkerState.GONE:
            self.die()


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[FakeWorker]:
    FakeWorker.made, FakeWorker.fail = [], []
    monkeypatch.setattr(pool_module, "Worker", FakeWorker)
    monkeypatch.setattr(pool_module, "FIRST_DELAY_S", 0.0)
    return FakeWorker.made


async def pool_of(size: int) -> WorkerPool:
    pool = WorkerPool((), size=size, stall_s=1.0, start_s=1.0)
    await pool.start()
    return pool


def say(text: str) -> Say:
    return Say(0, text, {})


def asking(pool: WorkerPool, text: str, lead: PlayoutLead | None = None) -> asyncio.Task[SpeechJob]:
    return asyncio.create_task(pool.say(say(text), lead))


def ahead(seconds: float, target_ms: float | None = None) -> PlayoutLead:
    lead = PlayoutLead(target_ms)
    lead.made(round(24_000 * seconds))
    return lead


async def test_who_asks_first_is_served_first(workers: list[FakeWorker]) -> None:
    pool = await pool_of(1)
    tasks = [asking(pool, text) for text in "abcd"]
    await settle()
    for _ in range(3):
        workers[0].done()
        await settle()
    assert workers[0].texts == ["a", "b", "c", "d"]
    assert all(task.done() for task in tasks)
    await pool.close()


async def test_the_context_with_the_least_sound_ahead_is_served_first(
    workers: list[FakeWorker],
) -> None:
    pool = await pool_of(1)
    leads = {
        "busy": None,
        "download": ahead(0.0, UNPACED_LEAD_MS),
        "much": ahead(8.0),
        "little": ahead(0.4),
        "new call": ahead(0.0),
    }
    tasks = [asking(pool, text, lead) for text, lead in leads.items()]
    await settle()
    for _ in range(len(leads) - 1):
        workers[0].done()
        await settle()
    assert workers[0].texts == ["busy", "new call", "little", "download", "much"]
    assert all(task.done() for task in tasks)
    await pool.close()


async def test_who_leaves_in_the_moment_of_being_served_passes_the_worker_on(
    workers: list[FakeWorker],
) -> None:
    pool = await pool_of(1)
    await pool.say(say("a"))
    leaving, staying = asking(pool, "leaving"), asking(pool, "staying")
    await settle()
    workers[0].done()  # handed to the one who leaves before it runs again
    leaving.cancel()
    await settle()
    assert leaving.cancelled()
    assert workers[0].texts == ["a", "staying"]
    assert staying.done()
    await pool.close()


async def test_a_worker_lost_in_the_moment_of_being_given_is_not_used(
    workers: list[FakeWorker],
) -> None:
    pool = await pool_of(1)
    await pool.say(say("a"))
    waiting = asking(pool, "b")
    await settle()
    workers[0].done()
    workers[0].die()
    await settle()
    assert workers[0].texts == ["a"]
    assert workers[1].texts == ["b"]
    assert waiting.done()
    assert pool.replaced == 1
    await pool.close()


async def test_a_replacement_that_fails_once_is_tried_again(workers: list[FakeWorker]) -> None:
    pool = await pool_of(2)
    FakeWorker.fail = ["not now"] * 2
    workers[0].die()
    await settle(30)
    assert len(workers) == 3
    assert pool.idle == 2
    await pool.close()


async def test_a_pool_that_could_not_be_refilled_is_refilled_later(
    workers: list[FakeWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = await pool_of(2)
    FakeWorker.fail = ["not now"] * pool_module.START_TRIES
    monkeypatch.setattr(pool_module, "RETRY_S", 1000.0)
    workers[0].die()
    await settle(60)
    assert pool.idle == 1
    await pool.say(say("a"))
    await settle(30)
    assert pool.idle == 0  # not yet tried again
    monkeypatch.setattr(pool_module, "RETRY_S", 0.0)
    FakeWorker.fail = ["not now"] * pool_module.START_TRIES
    workers[1].die()
    await settle(60)
    FakeWorker.fail = ["not now"] * pool_module.START_TRIES
    with pytest.raises(EngineFailed, match="none can be started: not now"):
        await pool.say(say("b"))
    await pool.say(say("c"))
    await settle()
    await pool.say(say("d"))
    assert len({worker.pid for worker in workers if worker.state is WorkerState.SPEAKING}) == 2
    await pool.close()


async def test_a_close_tells_those_who_wait(workers: list[FakeWorker]) -> None:
    pool = await pool_of(1)
    await pool.say(say("a"))
    waiting = asking(pool, "b")
    await settle()
    await pool.close()
    with pytest.raises(EngineFailed, match="closed"):
        await waiting
    with pytest.raises(EngineFailed, match="closed"):
        await pool.say(say("c"))
    assert pool.replaced == 0


async def test_one_worker_that_does_not_start_ends_the_others(workers: list[FakeWorker]) -> None:
    FakeWorker.fail = ["no memory"]
    with pytest.raises(StartFailed, match="no memory"):
        await pool_of(3)
    assert [worker.state for worker in workers] == [WorkerState.GONE, WorkerState.GONE]


async def begun(pool: WorkerPool, lead: PlayoutLead | None = None) -> SpeechJob:
    """A job that has had its first turn and paused."""
    task = asking(pool, "text", lead)
    await settle()
    saying = await task
    FakeWorker.made[0].pause()
    return saying


async def test_jobs_that_pause_take_turns_and_the_least_sound_ahead_goes_first(
    workers: list[FakeWorker],
) -> None:
    pool = await pool_of(1)
    near, far = ahead(0.1), ahead(1.0)
    first = await begun(pool, far)
    worker = workers[0]
    assert worker.turns == [first.job, first.job]  # nothing else is to be done
    task = asking(pool, "new", near)
    await settle()
    assert worker.texts == ["text"]  # not within a turn
    worker.pause()
    await settle()
    second = await task
    for _ in range(3):
        worker.pause()
    assert worker.turns[2:] == [second.job] * 4
    near.made(24_000 * 3)
    worker.pause()
    assert worker.turns[-1] == first.job
    await pool.close()


async def test_a_listener_who_is_about_to_run_dry_goes_before_a_new_call(
    workers: list[FakeWorker],
) -> None:
    pool = await pool_of(1)
    running, new = ahead(NEW_S / 1000), ahead(0.0)
    saying = await begun(pool, running)
    task = asking(pool, "new", new)
    await settle()
    workers[0].pause()
    assert workers[0].turns[-1] == saying.job
    assert not task.done()
    running.made(24_000)
    workers[0].pause()
    await settle()
    assert workers[0].texts == ["text", "new"]
    await pool.close()


async def test_among_equals_the_one_that_waits_longest_has_the_turn(
    workers: list[FakeWorker],
) -> None:
    pool = await pool_of(1)
    one = await begun(pool)
    task = asking(pool, "two")
    await settle()
    workers[0].pause()
    two = await task
    workers[0].pause()
    workers[0].pause()
    workers[0].pause()
    assert workers[0].turns[-4:] == [two.job, one.job, two.job, one.job]
    await pool.close()


async def test_a_job_whose_reader_lags_has_no_turn_until_it_reads(
    workers: list[FakeWorker],
) -> None:
    pool = await pool_of(1)
    saying = await begun(pool)
    saying.add(Sound(saying.job, bytes(round(UNREAD_S * BYTES_PER_S) + 2)))
    before = len(workers[0].turns)
    workers[0].pause()
    assert (pool.idle, len(workers[0].turns)) == (1, before)
    await saying.next()
    assert len(workers[0].turns) == before + 1
    await pool.close()


async def test_a_job_whose_listener_has_enough_rests_until_the_listener_needs_more(
    workers: list[FakeWorker],
) -> None:
    pool = WorkerPool((), size=1, stall_s=1.0, start_s=1.0, lead_s=1.0)
    await pool.start()
    lead = ahead(0.0)
    await begun(pool, lead)
    worker = workers[0]
    lead.made(24_000 * 2)
    lead.sent(24_000 * 2, time.monotonic())
    lead.report(0, False, time.monotonic())  # held: time alone changes nothing
    before = len(worker.turns)
    worker.pause()
    assert (pool.idle, len(worker.turns)) == (1, before)
    lead.report(24_000 * 2, True, time.monotonic())
    await settle()
    assert len(worker.turns) == before + 1
    await pool.close()


async def test_a_download_is_not_kept_waiting_by_its_lead(workers: list[FakeWorker]) -> None:
    pool = WorkerPool((), size=1, stall_s=1.0, start_s=1.0, lead_s=1.0)
    await pool.start()
    lead = ahead(500.0, UNPACED_LEAD_MS)
    await begun(pool, lead)
    workers[0].pause()
    assert len(workers[0].turns) == 3
    await pool.close()


# --- one job, as its reader sees it


async def test_the_first_sound_comes_alone_and_then_what_has_piled_up_together() -> None:
    saying = SpeechJob(1, lambda _: None)
    saying.add(Sound(1, b"\0\0"))
    saying.add(Sound(1, b"\1\0", ((0, 0),)))
    saying.add(Sound(1, b"\2\0\3\0"))
    saying.add(Sound(1, b"\4\0", ((5, 3), (7, 3))))
    saying.end(JobOutcome.SAID)
    assert await saying.next() == Sound(1, b"\0\0")
    assert await saying.next() == Sound(1, b"\1\0\2\0\3\0\4\0", ((0, 0), (5, 3), (7, 3)))
    assert await saying.next() is None


async def test_a_long_pile_is_read_in_parts() -> None:
    saying = SpeechJob(1, lambda _: None)
    for _ in range(11):
        saying.add(Sound(1, bytes(TOGETHER // 2)))
    saying.end(JobOutcome.SAID)
    sizes = []
    while (sound := await saying.next()) is not None:
        sizes.append(len(sound.pcm))
    assert sizes == [TOGETHER // 2] + [TOGETHER] * 5


async def test_a_saying_that_is_stopped_gives_nothing_more() -> None:
    told: list[SpeechJob] = []
    saying = SpeechJob(1, told.append)
    saying.add(Sound(1, b"\1\0"))
    saying.stop()
    assert await saying.next() is None
    assert told == [saying]
    assert saying.outcome is JobOutcome.STOPPED


@pytest.mark.parametrize("fields", [{}, {"facts": []}, {"facts": None}])
async def test_a_worker_that_is_ready_without_facts_is_ended(fields: dict[str, object]) -> None:
    told: list[Worker] = []
    script = (
        "import sys\nfrom qwen3tts_wire.child.messages import Message\n"
        f"sys.stdout.buffer.write(Message('ready', {fields}).encode())\n"
        "sys.stdout.flush()\nsys.stdin.read()"
    )
    worker = Worker(
        [sys.executable, "-P", "-c", script], stall_s=1.0, on_idle=told.append, on_gone=told.append
    )
    with pytest.raises(StartFailed, match="without its facts"):
        await worker.start(10.0)
    assert worker.state is WorkerState.GONE
    assert not told
