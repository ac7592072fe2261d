"""Who gets which worker, with workers that are none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from qwen3tts_engine.embedded import pool as pool_module
from qwen3tts_engine.embedded.messages import Ready, Say
from qwen3tts_engine.embedded.pool import Pool
from qwen3tts_engine.embedded.process import Saying, StartFailed, State
from qwen3tts_wire.errors import EngineFailed
from tests.fakes import settle


class FakeWorker:
    """Idle once started; says what it is given until ``done``."""

    made: list[FakeWorker]
    fail: list[str]
    """Reasons for the next starts to fail."""

    def __init__(
        self,
        library: Path,
        data: Path,
        *,
        stall_s: float,
        on_idle: Callable[[FakeWorker], None],
        on_gone: Callable[[FakeWorker], None],
    ) -> None:
        self.on_idle, self.on_gone = on_idle, on_gone
        self.state = State.STARTING
        self.texts: list[str] = []

    async def start(self, timeout_s: float) -> Ready:
        await asyncio.sleep(0)
        if self.fail:
            raise StartFailed(self.fail.pop(0))
        self.made.append(self)
        self.pid = len(self.made)
        self.state = State.IDLE
        self.on_idle(self)
        return Ready("0", 22050, (), ())

    def say(self, say: Say) -> Saying:
        assert self.state is State.IDLE
        self.state = State.SPEAKING
        self.texts.append(say.text)
        return Saying(lambda saying: None)

    def done(self) -> None:
        self.state = State.IDLE
        self.on_idle(self)

    def die(self) -> None:
        self.state = State.GONE
        self.on_gone(self)

    async def close(self) -> None:
        if self.state is not State.GONE:
            self.die()


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[FakeWorker]:
    FakeWorker.made, FakeWorker.fail = [], []
    monkeypatch.setattr(pool_module, "Worker", FakeWorker)
    monkeypatch.setattr(pool_module, "FIRST_DELAY_S", 0.0)
    return FakeWorker.made


async def pool_of(size: int) -> Pool:
    pool = Pool(Path(), Path(), size=size, stall_s=1.0, start_s=1.0)
    await pool.start()
    return pool


def say(text: str) -> Say:
    return Say(0, text, "v", 175, False)


def asking(pool: Pool, text: str) -> asyncio.Task[Saying]:
    return asyncio.create_task(pool.say(say(text)))


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
    assert len({worker.pid for worker in workers if worker.state is State.SPEAKING}) == 2
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
    assert [worker.state for worker in workers] == [State.GONE, State.GONE]
