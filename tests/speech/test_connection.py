from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from qwen3tts_speech.link import SpeechConnection
from qwen3tts_wire.errors import BadRequest, ConnectionLost
from tests.fakes import FakeClock, settle
from tests.speech.speech_servers import MAIN, Client, Servers


@pytest.fixture(autouse=True)
def _no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qwen3tts_speech.link.random.random", lambda: 0.0)


class World:
    """An connection, what it connects to, and what it told."""

    def __init__(self, *there: str) -> None:
        self.servers = Servers(*there)
        self.clock = FakeClock()
        self.told: list[bool] = []
        self.connection = SpeechConnection(
            MAIN,
            self.servers.connect,
            clock=self.clock,
            on_change=lambda: self.told.append(self.connection.up),
        )

    def up(self) -> bool:
        return self.connection.up

    def client(self) -> Client:
        return self.servers.made[-1]

    async def attempts_within(self, seconds: float) -> int:
        before = self.servers.attempts[MAIN]
        await self.clock.advance(seconds)
        return self.servers.attempts[MAIN] - before


@contextlib.asynccontextmanager
async def kept(*there: str) -> AsyncIterator[World]:
    tasks = asyncio.all_tasks()
    world = World(*there)
    world.connection.keep()
    await settle()
    yield world
    await world.connection.close()
    await settle()
    assert asyncio.all_tasks() == tasks
    assert all(client.closed for client in world.servers.made)


async def test_it_connects_and_tells_so_with_the_voice(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with kept(MAIN) as world:
        assert f"the voice: {world.client().session.model}" in caplog.text
        assert world.up()
        assert world.connection.client == cast(Any, world.client())
        assert world.told == [True]
        assert world.connection.error is None
        world.connection.keep()
        await settle()
        assert world.servers.attempts[MAIN] == 1


async def test_attempts_in_vain_come_ever_more_rarely_and_never_end() -> None:
    async with kept() as world:
        assert world.servers.attempts[MAIN] == 1
        for wait_s in (0.25, 0.5, 1, 2, 4, 8, 15, 15, 15):
            assert await world.attempts_within(wait_s - 0.01) == 0
            assert await world.attempts_within(0.01) == 1
        assert world.connection.attempts == 10
        assert isinstance(world.connection.error, ConnectionLost)
        world.servers.there.add(MAIN)
        await world.clock.advance(15)
        assert world.up()
        state = (world.connection.attempts, repr(world.connection.error))
        assert state == (0, "None")


async def test_who_waits_for_it_has_the_next_attempts_made_soon() -> None:
    async with kept() as world:
        await world.clock.advance(100)
        before = world.servers.attempts[MAIN]
        world.connection.nudge()
        await settle()
        assert world.servers.attempts[MAIN] - before == 1
        assert await world.attempts_within(0.8) == 2
        world.servers.there.add(MAIN)
        world.connection.nudge()
        await settle()
        assert world.up()
        world.connection.nudge()


async def test_what_breaks_in_connecting_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    async with kept() as world:
        for broken in (OSError(24, "too many files"), BadRequest("no"), ZeroDivisionError()):
            world.servers.broken = broken
            world.connection.nudge()
            await settle()
        assert isinstance(world.connection.error, ConnectionLost)
        assert "ZeroDivisionError" in str(world.connection.error)
        assert "broke" in caplog.text
        world.servers.broken = None
        world.servers.there.add(MAIN)
        world.connection.nudge()
        await settle()
        assert world.up()


async def test_an_attempt_that_hangs_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qwen3tts_speech.link.CONNECT_S", 0.0)
    world = World(MAIN)
    world.servers.hanging.add(MAIN)
    world.connection.keep()
    for _ in range(100):
        if world.connection.attempts:
            break
        await asyncio.sleep(0)
    assert "did not answer within" in str(world.connection.error)
    await world.connection.close()


async def test_a_lost_server_that_is_found_again_goes_on_on_the_same_connection() -> None:
    async with kept(MAIN) as world:
        await world.clock.advance(2)
        client = world.client()
        client.lose()
        await settle()
        assert not world.up()
        assert "has gone" in str(world.connection.error)
        client.find()
        await settle()
        assert world.up()
        assert world.servers.made == [client]
        assert world.told == [True, False, True]


async def test_a_lost_server_that_is_not_found_in_time_is_connected_to_anew() -> None:
    async with kept(MAIN) as world:
        await world.clock.advance(2)
        old = world.client()
        world.servers.lose(MAIN)
        await settle()
        old.find(ConnectionLost("refused"))
        await settle()
        assert old.closed, "nothing is under way on it"
        assert not world.up()
        world.servers.there.add(MAIN)
        await world.clock.advance(0.25)
        assert world.up()
        assert len(world.servers.made) == 2


async def test_a_server_that_comes_and_goes_is_not_run_into() -> None:
    async with kept(MAIN) as world:
        for _ in range(6):
            world.client().lose()
            await settle()
            assert not world.up()
            world.connection._waits = iter([2.0])
            await world.clock.advance(2)
        assert world.servers.attempts[MAIN] <= 7


async def test_a_connection_that_went_on_elsewhere_finishes_there_and_a_new_one_is_made() -> None:
    async with kept(MAIN) as world:
        await world.clock.advance(2)
        old = world.client()
        old.idle = False
        old.lose()
        await settle()
        old.elsewhere = True
        old.find()
        await settle()
        assert world.up()
        assert world.client() is not old
        await world.clock.advance(60)
        assert not old.closed
        old.idle = True
        await world.clock.advance(1)
        assert old.closed


async def test_a_draining_server_finishes_what_it_has_and_is_then_left() -> None:
    async with kept(MAIN) as world:
        await world.clock.advance(2)
        old = world.client()
        old.idle = False
        old.draining.set()
        old.lose()
        await settle()
        assert world.up()
        assert world.client() is not old
        await world.clock.advance(60)
        assert not old.closed
        old.idle = True
        await world.clock.advance(1)
        assert old.closed


async def test_what_is_never_over_is_closed_at_last() -> None:
    async with kept(MAIN) as world:
        old = world.client()
        old.idle = False
        world.connection.drop(old)  # type: ignore[arg-type]
        await world.clock.advance(599)
        assert not old.closed
        await world.clock.advance(2)
        assert old.closed


async def test_a_connection_that_brings_no_answer_is_left_and_another_one_made() -> None:
    async with kept(MAIN) as world:
        old = world.client()
        world.connection.drop(old)  # type: ignore[arg-type]
        assert not world.up()
        await settle()
        assert world.up()
        assert world.client() is not old
        world.connection.drop(old)  # type: ignore[arg-type]
        assert world.up(), "it was left already"


async def test_it_can_be_closed_in_every_state() -> None:
    world = World(MAIN)
    await world.connection.close()
    world.servers.hanging.add(MAIN)
    world.connection.keep()
    await settle()
    await world.connection.close()
    async with kept(MAIN) as world:
        world.client().idle = False
        world.connection.drop(world.client())  # type: ignore[arg-type]
        await settle()
