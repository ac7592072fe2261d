"""What the worker survives: readers that vanish, guards that break, its own end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from qwen3tts_engine.base import PcmChunk
from qwen3tts_engine.qwen3.engine.jobs import Job, OutputQueue
from qwen3tts_engine.qwen3.model.config import Samples
from qwen3tts_text.growing import LiveText
from qwen3tts_wire.errors import EngineFailed
from tests.qwen3.engine.worker_world import FakePostprocessor, World

WORDS = "secret words"


class BreaksInSound(FakePostprocessor):
    def process(self, job: Job, samples: Samples) -> tuple[PcmChunk | None, bool]:
        if job.seed == 2 and job.decoded >= 3:
            raise LookupError(WORDS)
        return super().process(job, samples)


class BreaksAtTheEnd(FakePostprocessor):
    def finish(self, job: Job) -> PcmChunk:
        if job.seed == 2:
            raise LookupError(WORDS)
        return super().finish(job)


@pytest.mark.parametrize("voicing", [BreaksInSound, BreaksAtTheEnd])
def test_a_row_whose_sound_cannot_be_judged_fails_alone(
    voicing: type[FakePostprocessor], caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    world.voicing = voicing
    said = {seed: world.say(seed=seed)[1] for seed in (1, 2, 3)}
    world.run()
    assert isinstance(said[2].error, EngineFailed)
    assert said[1].frames == said[3].frames == list(range(1, 11))
    assert world.runner.resets == 0
    assert not world.runner.rows
    assert "LookupError" in caplog.text
    assert "secret" not in caplog.text


def test_the_log_tells_a_devices_reason_and_no_text(caplog: pytest.LogCaptureFixture) -> None:
    world = World()

    def refuse(_track: object) -> None:
        raise RuntimeError("the device is lost")

    world.say(seed=1, lay_out=refuse)
    world.run()
    assert "the device is lost" in caplog.text
    assert "test_worker_life.py" in caplog.text


async def test_a_row_whose_readers_loop_is_gone_leaves_its_slot() -> None:
    world = World()
    loop = asyncio.new_event_loop()

    async def output_queue() -> OutputQueue:
        return OutputQueue(48_000, world.worker.wake)

    job = world.job(seed=1)
    job.output = await asyncio.to_thread(loop.run_until_complete, output_queue())
    world.runner.frames_of[1] = 10_000
    world.worker.submit(job)
    world.turn()
    assert world.runner.rows
    loop.close()
    world.run()
    assert not world.runner.rows
    assert world.worker.under_way == 0


def test_a_reader_who_reads_nothing_blocks_no_other() -> None:
    world = World(slots=1)
    _, out = world.say(seed=1)
    out.read = 0
    world.runner.frames_of[1] = 100
    world.run()
    assert len(out.frames) < 40
    _, other = world.say(seed=2)
    world.run()
    assert len(out.frames) == 100
    assert out.end == "text_end"
    assert other.frames == list(range(1, 11))


async def test_room_that_was_made_while_more_was_put_wakes_the_engine() -> None:
    woken: list[int] = []
    out = OutputQueue(10, lambda: woken.append(out.unread))

    class Slow(PcmChunk):
        """While it is read, the engine puts more and finds its reader too far behind."""

        @property
        def samples(self) -> int:
            if meanwhile:
                out.put(meanwhile.pop())
                assert out.unread >= 10
            return 8

    meanwhile: list[PcmChunk] = []
    out.put(Slow(bytes(16)))
    await asyncio.sleep(0)
    meanwhile.append(PcmChunk(bytes(8)))
    await out.next()
    assert woken == [4]


async def test_an_error_of_many_readers_does_not_keep_their_frames() -> None:
    error = EngineFailed("It broke.")
    lengths = []
    for _ in range(5):
        out = OutputQueue(10, lambda: None)
        out.finish(error)
        with pytest.raises(EngineFailed):
            await out.next()
        trace, length = error.__traceback__, 0
        while trace is not None:
            trace, length = trace.tb_next, length + 1
        lengths.append(length)
    assert len(set(lengths)) == 1


def test_work_no_longer_awaited_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    done: list[int] = []
    given_up = world.worker.when_idle(lambda: done.append(1))
    waited_for = world.worker.when_idle(lambda: done.append(2))
    assert given_up.cancel()
    world.run()
    assert done == [2]
    assert waited_for.done()
    assert world.runner.resets == 0
    assert not caplog.records


def test_work_that_was_given_up_does_not_stop_the_end() -> None:
    world = World()
    _, out = world.say(seed=1)
    given_up = world.worker.when_idle(lambda: None)
    given_up.cancel()
    waited_for = world.worker.when_idle(lambda: None)
    world.worker.close()
    world.worker.run()
    assert isinstance(out.error, EngineFailed)
    assert isinstance(waited_for.exception(0), EngineFailed)


def test_whatever_ends_the_loop_its_readers_are_told() -> None:
    world = World()

    def leave(what: str, seeds: Any) -> None:
        if what == "step":
            raise SystemExit

    world.runner.fails = leave
    _, out = world.say(seed=1)
    with pytest.raises(SystemExit):
        world.worker.run()
    assert isinstance(out.error, EngineFailed)
    _, late = world.say(seed=2)
    assert isinstance(late.error, EngineFailed)
    with pytest.raises(EngineFailed):
        world.worker.when_idle(lambda: None).result(0)


def test_text_that_has_no_room_is_left_for_another_generation() -> None:
    world = World()
    more = LiveText()
    more.push(" two three four five", range(3, 24))
    _, out = world.say("one", seed=1, more=more, most=20)
    world.run()
    assert out.end == "text_end"
    said = "".join(map(chr, (each for each in world.runner.texts[1] if each > 0)))
    assert "o" + said + "".join(text for text, _ in more.take()) == "one two three four five"
