from __future__ import annotations

import asyncio

import pytest

from qwen3tts_wire.addresses import first_connected
from qwen3tts_wire.connection import ClockOffset
from qwen3tts_wire.errors import ConnectionLost
from tests.fakes import settle


def test_the_quickest_ping_is_believed() -> None:
    offset = ClockOffset()
    offset.add(10.0, 1010.5, 1010.5, 10.6)  # slow on the way there
    offset.add(20.0, 1020.01, 1020.01, 20.02)
    offset.add(30.0, 1030.0, 1030.0, 30.4)  # slow on the way back
    assert offset.best.offset_s == pytest.approx(1000.0)
    assert offset.best.rtt_s == pytest.approx(0.02)


def test_time_that_the_server_takes_is_not_on_the_way() -> None:
    offset = ClockOffset()
    offset.add(0.0, 5.1, 6.1, 1.2)
    assert offset.best.rtt_s == pytest.approx(0.2)
    assert offset.best.offset_s == pytest.approx(5.0)


def test_old_pings_are_forgotten_so_that_a_drift_is_followed() -> None:
    offset = ClockOffset(keep=2)
    offset.add(0, 100.0, 100.0, 0)
    for at in (1.0, 2.0):
        offset.add(at, at + 200.05, at + 200.05, at + 0.1)
    assert offset.best.offset_s == pytest.approx(200.0)


def test_before_the_first_ping_the_clocks_are_taken_as_one() -> None:
    offset = ClockOffset()
    assert not offset.known
    assert offset.best.offset_s == 0.0


LONG_S = 60.0


class Places:
    """Addresses, each of which answers when the test says so."""

    def __init__(self) -> None:
        self.answers: dict[str, asyncio.Future[str]] = {}
        self.left: list[str] = []
        self.dialled: list[str] = []

    def answer(self, url: str) -> asyncio.Future[str]:
        return self.answers.setdefault(url, asyncio.get_running_loop().create_future())

    def fail(self, url: str) -> None:
        self.answer(url).set_exception(ConnectionLost(f"{url} is away."))

    async def dial(self, url: str) -> str:
        self.dialled.append(url)
        return await self.answer(url)

    async def leave(self, line: str) -> None:
        self.left.append(line)

    async def first(self, head_start_s: float) -> str:
        return await first_connected(["a", "b"], self.dial, self.leave, head_start_s=head_start_s)


async def test_the_second_address_is_not_asked_while_the_first_answers() -> None:
    places = Places()
    places.answer("a").set_result("line to a")
    assert await places.first(LONG_S) == "line to a"
    assert places.dialled == ["a"]


async def test_the_second_address_is_asked_as_soon_as_the_first_has_failed() -> None:
    places = Places()
    places.fail("a")
    places.answer("b").set_result("line to b")
    assert await places.first(LONG_S) == "line to b"


async def test_an_address_that_does_not_answer_is_not_waited_for() -> None:
    places = Places()
    places.answer("b").set_result("line to b")
    assert await places.first(0.0) == "line to b"
    assert places.dialled == ["a", "b"]
    assert places.answers["a"].cancelled()


async def test_of_two_that_answer_together_the_better_one_is_taken_and_the_other_is_left() -> None:
    places = Places()
    finding = asyncio.create_task(places.first(0.0))
    await settle(20)
    places.answer("b").set_result("line to b")
    places.answer("a").set_result("line to a")
    assert await finding == "line to a"
    assert places.left in ([], ["line to b"])
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_where_none_answers_the_reason_is_that_of_the_first() -> None:
    places = Places()
    places.fail("a")
    places.fail("b")
    with pytest.raises(ConnectionLost, match="a is away"):
        await places.first(LONG_S)


async def test_who_stops_looking_leaves_nothing_behind() -> None:
    places = Places()
    finding = asyncio.create_task(places.first(LONG_S))
    await settle()
    finding.cancel()
    await asyncio.wait([finding])
    assert places.answers["a"].cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_defect_is_no_address_that_is_away() -> None:
    places = Places()
    places.answer("a").set_exception(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        await places.first(LONG_S)
