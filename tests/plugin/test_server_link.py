from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mr_qwen3tts.connection import LinkState, ServerLink
from qwen3tts_wire.client import SpeechClient
from qwen3tts_wire.errors import ConnectionLost
from tests.fakes import FakeClock, settle
from tests.speech.speech_servers import MAIN, OTHER, Servers


class World:
    """A link, and what it leads to."""

    def __init__(self, *there: str, fallback: bool = False, **options: Any) -> None:
        self.servers = Servers(*there)
        self.clock = FakeClock()
        self.states: list[LinkState] = []
        options = {"on_state": self.states.append, **options}
        self.link = ServerLink(
            MAIN,
            fallback_url=OTHER if fallback else None,
            connect=self.servers.connect,
            clock=self.clock,
            **options,
        )

    def now(self) -> str:
        """The address that a reply would go to at this moment, without waiting."""
        return at_once(self.link).url


def at_once(link: ServerLink) -> SpeechClient:
    """The client, from a call that must not wait."""
    asking = link.client()
    try:
        asking.send(None)
    except StopIteration as answer:
        client: SpeechClient = answer.value
        return client
    asking.close()
    raise AssertionError("it waits")


@contextlib.asynccontextmanager
async def kept(*there: str, fallback: bool = False) -> AsyncIterator[World]:
    tasks = asyncio.all_tasks()
    world = World(*there, fallback=fallback)
    world.link.keep()
    await settle()
    yield world
    await world.link.close()
    await settle()
    assert asyncio.all_tasks() == tasks
    assert all(client.closed for client in world.servers.made)


async def test_while_the_connection_is_up_nobody_waits() -> None:
    async with kept(MAIN) as world:
        assert at_once(world.link) is at_once(world.link)
        assert world.servers.attempts[MAIN] == 1


async def test_the_first_reply_connects_where_nobody_kept_the_link() -> None:
    world = World(MAIN)
    assert (await world.link.client()).url == MAIN
    await world.link.close()


@pytest.mark.parametrize("hanging", [False, True])
async def test_without_a_server_a_reply_waits_so_long_and_no_longer(hanging: bool) -> None:
    async with kept() as world:
        if hanging:
            world.servers.hanging.add(MAIN)
            await world.clock.advance(100)
        asking = asyncio.create_task(world.link.client())
        await world.clock.advance(1.19)
        assert not asking.done()
        await world.clock.advance(0.01)
        with pytest.raises(ConnectionLost, match="No speech server is there") as caught:
            await asking
        assert MAIN in str(caught.value)
        assert caught.value.remedy


async def test_before_the_first_attempt_has_ended_the_error_says_what_to_do() -> None:
    world = World()
    world.servers.hanging.add(MAIN)
    asking = asyncio.create_task(world.link.client())
    await world.clock.advance(1.2)
    with pytest.raises(ConnectionLost, match="mr-qwen3tts serve"):
        await asking
    await world.link.close()


async def test_a_server_that_comes_while_a_reply_waits_is_taken_though_attempts_were_rare() -> None:
    async with kept() as world:
        await world.clock.advance(100)
        asking = [asyncio.create_task(world.link.client()) for _ in range(5)]
        await world.clock.advance(0.1)
        world.servers.there.add(MAIN)
        await world.clock.advance(1.0)
        clients = await asyncio.gather(*asking)
        assert len(set(map(id, clients))) == 1


async def test_attempts_for_replies_that_wait_are_few() -> None:
    async with kept() as world:
        await world.clock.advance(100)
        before = world.servers.attempts[MAIN]
        asking = asyncio.create_task(world.link.client())
        await world.clock.advance(1.2)
        with pytest.raises(ConnectionLost):
            await asking
        assert 2 <= world.servers.attempts[MAIN] - before <= 7


async def test_the_main_server_is_waited_for_first_and_then_the_fallback_speaks() -> None:
    async with kept(MAIN, OTHER, fallback=True) as world:
        assert world.now() == MAIN
        await world.clock.advance(10)
        world.servers.lose(MAIN)
        await settle()
        asking = asyncio.create_task(world.link.client())
        await world.clock.advance(1.19)
        assert not asking.done()
        await world.clock.advance(0.01)
        assert (await asking).url == OTHER
        assert world.now() == OTHER, "the wait is over for all"
        assert world.link.state.using_fallback


async def test_as_soon_as_the_main_server_is_back_it_speaks_and_what_is_under_way_stays() -> None:
    async with kept(OTHER, fallback=True) as world:
        await world.clock.advance(100)
        fallback = at_once(world.link)
        assert fallback.url == OTHER
        world.servers.there.add(MAIN)
        await world.clock.advance(15)
        assert world.now() == MAIN
        assert not world.link.state.using_fallback
        assert fallback.connected


async def test_a_fallback_that_is_away_as_well_is_told_with_the_reason_of_both() -> None:
    async with kept(fallback=True) as world:
        asking = asyncio.create_task(world.link.client())
        await world.clock.advance(1.2)
        with pytest.raises(ConnectionLost) as caught:
            await asking
        assert MAIN in str(caught.value)
        assert OTHER in str(caught.value)


async def test_a_fallback_that_comes_while_a_reply_waits_is_taken() -> None:
    async with kept(fallback=True) as world:
        await world.clock.advance(100)
        asking = asyncio.create_task(world.link.client())
        await settle()
        world.servers.there.add(OTHER)
        await world.clock.advance(1)
        assert (await asking).url == OTHER


async def test_a_server_that_stalled_is_passed_over_for_a_while() -> None:
    async with kept(MAIN, OTHER, fallback=True) as world:
        world.link.stalled(at_once(world.link))
        await settle()
        assert world.now() == OTHER
        assert len(world.servers.made) == 3, "it was connected to anew"
        await world.clock.advance(29.9)
        assert world.now() == OTHER
        await world.clock.advance(0.2)
        assert world.now() == MAIN


async def test_a_stalled_server_without_a_fallback_is_spoken_with_on_another_connection() -> None:
    async with kept(MAIN) as world:
        old = at_once(world.link)
        world.link.stalled(old)
        await settle()
        new = at_once(world.link)
        assert new is not old
        assert new.url == MAIN


async def test_a_stalled_server_that_is_gone_gives_way_to_the_fallback_at_once() -> None:
    async with kept(MAIN, OTHER, fallback=True) as world:
        world.servers.there.discard(MAIN)
        world.link.stalled(at_once(world.link))
        await settle()
        assert world.now() == OTHER


async def test_its_state_tells_who_speaks_and_what_is_wrong() -> None:
    world = World()
    assert (world.link.state.up, world.link.state.last_error) == (False, None)
    world.link.keep()
    await settle()
    state = world.link.state
    assert (state.url, state.up, state.attempts, state.engine) == (MAIN, False, 1, "")
    assert isinstance(state.last_error, ConnectionLost)
    world.servers.there.add(MAIN)
    await world.clock.advance(1)
    state = world.link.state
    assert (state.up, state.engine, state.model) == (True, "fake", "tones")
    assert (state.attempts, state.last_error, state.using_fallback) == (0, None, False)
    assert state.since > 1e9
    assert [each.up for each in world.states] == [False, True]
    await world.link.close()


async def test_a_listener_that_breaks_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    def breaks(state: LinkState) -> None:
        raise ZeroDivisionError

    world = World(MAIN, on_state=breaks)
    world.link.keep()
    await settle()
    assert world.now() == MAIN
    assert "broke" in caplog.text
    await world.link.close()


async def test_a_closed_link_says_so_also_to_who_waits() -> None:
    async with kept() as world:
        asking = asyncio.create_task(world.link.client())
        await settle()
        await world.link.close()
        with pytest.raises(ConnectionLost, match="closed"):
            await asking
        world.link.keep()
        with pytest.raises(ConnectionLost, match="closed"):
            at_once(world.link)


async def test_who_stops_waiting_leaves_nothing_behind() -> None:
    async with kept() as world:
        asking = asyncio.create_task(world.link.client())
        await settle()
        asking.cancel()
        await asyncio.wait([asking])
        assert not world.link._waiters


# --- a server that takes text and sends no sound


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qwen3tts_speech.link.FIRST_WITHIN_S", 0.05)


@pytest.mark.usefixtures("soon")
async def test_a_server_that_answers_and_sends_no_sound_is_an_outage_until_it_sends_some() -> None:
    async with kept(MAIN) as world:
        assert await world.link.outage() is None
        world.link.stalled(at_once(world.link))
        await settle()
        assert world.link.state.up
        found = await world.link.outage()
        assert isinstance(found, ConnectionLost)
        assert "sends no sound" in str(found)
        client = world.servers.made[-1]
        assert [each.cancelled_at for each in client.contexts] == [[0]]
        client.mute = False
        await world.clock.advance(2.0)
        assert await world.link.outage() is None
        assert await world.link.outage() is None
        assert len(client.contexts) == 2, "it is heard: no further word is asked for"


@pytest.mark.usefixtures("soon")
async def test_a_mute_server_is_no_outage_while_the_fallback_speaks() -> None:
    async with kept(MAIN, OTHER, fallback=True) as world:
        world.link.stalled(at_once(world.link))
        await settle()
        assert await world.link.outage() is None
        assert not any(each.contexts for each in world.servers.made), "no word is asked for"
        world.link.stalled(at_once(world.link))
        await settle()
        assert isinstance(await world.link.outage(), ConnectionLost)


async def test_while_no_server_is_up_the_outage_is_known_without_an_attempt() -> None:
    async with kept(MAIN) as world:
        await world.clock.advance(2)
        world.servers.lose(MAIN)
        await settle()
        attempts = world.servers.attempts[MAIN]
        assert "has gone" in str(await world.link.outage())
        assert world.servers.attempts[MAIN] == attempts
