"""Utterances beyond the capacity of one connection go on another one beside it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from qwen3tts_speech.link import SPARE, SpeechLink
from qwen3tts_wire.messages import Limits
from tests.fakes import FakeClock
from tests.speech.fakes import FakeClient

MOST = 5


class Server:
    """Gives connections that take a few contexts each."""

    def __init__(self) -> None:
        self.clients: list[FakeClient] = []
        self.clock = FakeClock()
        self.link = SpeechLink("ws://test", connect=cast(Any, self._connect), clock=self.clock)

    async def _connect(self, url: str) -> FakeClient:
        client = FakeClient()
        client.session.limits = Limits(max_contexts=MOST + SPARE)
        client.url = url  # type: ignore[attr-defined]
        self.clients.append(client)
        await asyncio.sleep(0)
        return client

    async def leased(self, count: int) -> list[FakeClient]:
        got = await asyncio.gather(*(self.link.lease() for _ in range(count)))
        return [cast(FakeClient, client) for client in got]


async def test_one_connection_is_shared_as_long_as_it_has_room() -> None:
    server = Server()
    got = await server.leased(MOST)
    assert len(server.clients) == 1
    assert {id(client) for client in got} == {id(server.clients[0])}


async def test_many_at_once_are_spread_over_as_few_as_it_takes() -> None:
    server = Server()
    got = await server.leased(3 * MOST + 1)
    assert len(server.clients) == 4
    assert all(got.count(client) <= MOST for client in server.clients)


async def test_the_first_one_is_taken_again_when_it_has_room() -> None:
    server = Server()
    first = await server.leased(MOST)
    (second,) = await server.leased(1)
    assert second is not first[0]
    server.link.release(cast(Any, first[0]))
    assert (await server.leased(1))[0] is first[0]
    assert len(server.clients) == 2


async def test_a_connection_that_has_ended_or_stalls_is_not_taken() -> None:
    server = Server()
    await server.leased(MOST)
    (second,) = await server.leased(1)
    second.closed = True
    (third,) = await server.leased(1)
    assert third is server.clients[2]
    server.link.stalled(cast(Any, third))
    assert (await server.leased(1))[0] is server.clients[3]


async def test_all_are_closed_at_the_end() -> None:
    server = Server()
    await server.leased(2 * MOST)
    await server.link.close()
    assert all(client.closed for client in server.clients)


async def test_a_draining_connection_is_closed_once_its_utterances_have_ended() -> None:
    server = Server()
    (first, _) = await server.leased(2)
    first.draining.set()
    (third,) = await server.leased(1)
    assert third is not first
    server.link.release(cast(Any, first))
    await server.clock.advance(60)
    assert (first.closed, third.closed) == (False, False)
    server.link.release(cast(Any, first))
    await server.clock.advance(1)
    assert (first.closed, third.closed) == (True, False)
