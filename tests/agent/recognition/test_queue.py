from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from qwen3tts_agent.recognition.queue import RESTART_DELAY_S, RecognitionQueue
from qwen3tts_phone.detection.recogniser import (
    RecogniserBusy,
    RecogniserUnavailable,
    RecognitionFailed,
    Samples,
)
from qwen3tts_wire.whisper.guards import Decoding
from tests.agent.recognition.sounds import tone
from tests.fakes import FakeClock, settle

PIECE = tone(0.1)


class FakeWorker:
    """Worker that answers on command."""

    def __init__(self) -> None:
        self.on_gone: Callable[[], None] = lambda: None
        self.alive = True
        self.asked: list[asyncio.Future[Decoding]] = []
        self.dropped = 0
        self.at_once = 0
        self.is_idle = asyncio.Event()

    async def hear(self, samples: Samples) -> Decoding:
        self.at_once += 1
        assert self.at_once == 1
        self.asked.append(asyncio.get_running_loop().create_future())
        try:
            return await self.asked[-1]
        except asyncio.CancelledError:
            self.dropped += 1
            raise
        finally:
            self.at_once -= 1

    async def idle(self) -> None:
        await self.is_idle.wait()

    async def close(self) -> None:
        self.alive = False

    def die(self) -> None:
        self.alive = False
        if self.asked and not self.asked[-1].done():
            self.asked[-1].set_exception(RecognitionFailed("It died."))
        self.on_gone()


class House:
    """A desk with workers that are fakes."""

    def __init__(self, most_waiting: int = 4) -> None:
        self.clock = FakeClock()
        self.workers: list[FakeWorker] = []
        self.failure: Exception | None = None
        self.starts = 0
        self.may_start = asyncio.Event()
        self.may_start.set()
        self.desk = RecognitionQueue(self._start, self.clock, most_waiting=most_waiting)

    async def _start(self) -> FakeWorker:
        self.starts += 1
        await self.may_start.wait()
        if self.failure is not None:
            raise self.failure
        self.workers.append(FakeWorker())
        return self.workers[-1]

    def ask(self, *, spare: bool = False) -> asyncio.Task[Decoding]:
        return asyncio.ensure_future(self.desk.ask(PIECE, spare=spare))


async def test_pieces_of_all_calls_are_heard_one_after_the_other() -> None:
    house = House()
    answers = [house.ask() for _ in range(3)]
    await settle()
    for number in range(3):
        assert len(house.workers[0].asked) == number + 1
        house.workers[0].asked[number].set_result(Decoding(str(number)))
        await settle()
        assert (await answers[number]).text == str(number)
    await house.desk.close()


async def test_more_than_may_wait_is_refused() -> None:
    house = House(most_waiting=2)
    answers = [house.ask() for _ in range(2)]
    await settle()
    answers += [house.ask() for _ in range(2)]
    await settle()
    with pytest.raises(RecogniserBusy, match="2 pieces") as caught:
        await answers[3]
    assert caught.value.remedy
    assert caught.value.retryable
    await house.desk.close()
    for answer in answers[:3]:
        with pytest.raises(RecognitionFailed, match="closed"):
            await answer


async def test_a_piece_that_nobody_wants_any_more_makes_room() -> None:
    house = House(most_waiting=1)
    first = house.ask()
    await settle()
    second = house.ask()
    await settle()
    second.cancel()
    third = house.ask()
    await settle()
    house.workers[0].asked[0].set_result(Decoding("first"))
    await settle()
    house.workers[0].asked[1].set_result(Decoding("third"))
    assert [(await first).text, (await third).text] == ["first", "third"]
    await house.desk.close()


async def test_a_piece_that_is_dropped_while_it_is_heard_holds_up_nobody() -> None:
    house = House()
    first, second = house.ask(), house.ask()
    await settle()
    first.cancel()
    await settle()
    worker = house.workers[0]
    assert worker.dropped == 1
    assert len(worker.asked) == 1  # until it has let go
    worker.is_idle.set()
    await settle()
    worker.asked[1].set_result(Decoding("second"))
    assert (await second).text == "second"
    await house.desk.close()


async def test_a_worker_that_dies_costs_its_piece_and_is_replaced() -> None:
    house = House()
    first, second = house.ask(), house.ask()
    await settle()
    house.workers[0].die()
    with pytest.raises(RecognitionFailed, match="It died"):
        await first
    await settle()
    house.workers[1].asked[0].set_result(Decoding("second"))
    assert (await second).text == "second"
    assert house.desk.started == 2
    await house.desk.close()


async def test_a_worker_that_dies_idle_is_replaced_before_anybody_asks() -> None:
    house = House()
    await house.desk.ready()
    house.workers[0].die()
    await settle()
    assert len(house.workers) == 2
    await house.desk.close()


async def test_workers_that_die_one_after_the_other_are_not_started_without_end() -> None:
    house = House()
    await house.desk.ready()
    for _ in range(5):
        house.workers[-1].die()
        await settle()
    assert house.starts == 2
    with pytest.raises(RecognitionFailed, match="again and again"):
        await house.desk.ask(PIECE)
    await house.clock.advance(RESTART_DELAY_S + 0.1)
    await house.desk.ready()
    assert house.starts == 3
    await house.desk.close()


async def test_a_model_that_is_missing_is_said_at_once_and_looked_for_again_later() -> None:
    house = House()
    house.failure = RecogniserUnavailable("There is no model.", remedy="Fetch it.")
    with pytest.raises(RecogniserUnavailable, match="no model"):
        await house.desk.ready()
    for _ in range(3):
        with pytest.raises(RecogniserUnavailable, match="Fetch it"):
            await house.desk.ask(PIECE)
    assert house.starts == 1
    house.failure = None
    await house.clock.advance(RESTART_DELAY_S + 0.1)
    await house.desk.ready()
    assert house.starts == 2
    await house.desk.close()


async def test_everybody_waits_for_one_start() -> None:
    house = House()
    house.may_start.clear()
    ready = [asyncio.ensure_future(house.desk.ready()) for _ in range(3)]
    answer = house.ask()
    await settle()
    ready[0].cancel()  # the others still want it
    loading = [house.desk.loading]
    house.may_start.set()
    await settle()
    assert [*loading, house.desk.loading] == [True, False]
    assert house.starts == 1
    await asyncio.gather(*ready[1:])
    house.workers[0].asked[0].set_result(Decoding("x"))
    await answer
    await house.desk.close()


async def test_a_desk_that_is_closed_while_it_starts() -> None:
    house = House()
    house.may_start.clear()
    ready, answer = asyncio.ensure_future(house.desk.ready()), house.ask()
    await settle()
    await house.desk.close()
    for each in (ready, answer):
        with pytest.raises(RecognitionFailed, match="closed"):
            await each
    with pytest.raises(RecognitionFailed, match="closed"):
        await house.desk.ask(PIECE)


async def test_a_defect_costs_one_piece(caplog: pytest.LogCaptureFixture) -> None:
    house = House()
    first, second = house.ask(), house.ask()
    await settle()
    house.workers[0].asked[0].set_exception(KeyError("oops"))
    with pytest.raises(RecognitionFailed, match="KeyError"):
        await first
    await settle()
    house.workers[0].asked[1].set_result(Decoding("second"))
    assert (await second).text == "second"
    assert "could not be heard" in caplog.text
    await house.desk.close()


async def test_why_there_is_no_worker_is_logged_only_where_it_is_not_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = House()
    house.failure = RecogniserUnavailable("There is no model.", remedy="Fetch it.")
    with pytest.raises(RecogniserUnavailable):
        await house.desk.ready()
    assert caplog.messages == []
    await house.clock.advance(RESTART_DELAY_S + 0.1)
    house.desk.begin()
    await settle()
    assert caplog.messages == ["the recogniser does not start: There is no model. Fetch it."]
    await house.desk.close()


async def test_a_partial_text_is_made_when_there_is_nothing_else_to_do() -> None:
    house = House()
    with pytest.raises(RecogniserBusy):
        await house.ask(spare=True)  # no worker yet, and none is started for it
    assert house.starts == 0
    await house.desk.ready()
    spare = house.ask(spare=True)
    await settle()
    with pytest.raises(RecogniserBusy):
        await house.ask(spare=True)
    house.workers[0].asked[0].set_result(Decoding("so far"))
    assert (await spare).text == "so far"
    await house.desk.close()


async def test_a_partial_text_makes_way_for_a_turn_that_is_waited_for() -> None:
    house = House()
    await house.desk.ready()
    worker = house.workers[0]
    spare = house.ask(spare=True)
    await settle()
    needed = house.ask()
    with pytest.raises(RecogniserBusy):
        await spare
    await settle()
    assert worker.dropped == 1
    worker.is_idle.set()
    await settle()
    worker.asked[1].set_result(Decoding("all of it"))
    assert (await needed).text == "all of it"
    await house.desk.close()
