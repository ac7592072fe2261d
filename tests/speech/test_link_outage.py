"""Whether a link knows that no speech server can be reached."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, cast

import pytest

from qwen3tts_speech.link import SpeechLink
from qwen3tts_wire.errors import ConnectionLost, SpeechError, UnknownVoice
from tests.speech.fakes import FakeClient, FakeContext


class Server:
    """Is there, or is not; counts who asks."""

    def __init__(self) -> None:
        self.there = True
        self.mute = False
        self.asked = 0
        self.clients: list[Client] = []
        self.link = SpeechLink("ws://test", connect=cast(Any, self._connect))

    async def _connect(self, url: str) -> Client:
        self.asked += 1
        await asyncio.sleep(0)
        if not self.there:
            raise ConnectionLost("refused")
        self.clients.append(Client(self))
        return self.clients[-1]

    def goes(self) -> None:
        self.there = False
        for client in self.clients:
            client.connected = False

    def returns(self) -> None:
        self.there = True


class Client(FakeClient):
    """A connection that looks for its server again when it is asked whether it is ready."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.connected = True
        self._server = server

    async def open(self, **options: Any) -> FakeContext:
        context = await super().open(**options)
        if not self._server.mute:
            context.start()
            context.sound(20)
        return context

    async def ready(self) -> None:
        self._server.asked += 1
        await asyncio.sleep(0)
        if not self._server.there:
            raise ConnectionLost("still away")
        self.connected = True

    async def close(self) -> None:
        self.closed = True


def stale(link: SpeechLink) -> None:
    """The last failure has become old."""
    assert link.connections[0].failed_at is not None
    link.connections[0].failed_at = -1e9


async def test_a_link_that_was_never_used_knows_of_no_outage() -> None:
    server = Server()
    server.goes()
    assert await server.link.outage() is None
    assert server.asked == 0


async def test_while_it_is_connected_nothing_is_asked() -> None:
    server = Server()
    await server.link.warm()
    assert await server.link.outage() is None
    assert server.asked == 1


async def test_a_server_that_is_lost_is_looked_for_once_for_all_who_ask() -> None:
    server = Server()
    await server.link.warm()
    server.goes()
    found = await asyncio.gather(*(server.link.outage() for _ in range(20)))
    assert all(isinstance(each, ConnectionLost) for each in found)
    assert server.asked == 2
    assert isinstance(await server.link.outage(), SpeechError)
    assert server.asked == 2


async def test_a_server_that_is_back_is_found_by_the_next_who_asks() -> None:
    server = Server()
    await server.link.warm()
    server.goes()
    assert await server.link.outage() is not None
    server.returns()
    stale(server.link)
    assert await server.link.outage() is None
    assert server.link.connections[0].error is None


async def test_a_first_attempt_that_failed_is_an_outage() -> None:
    server = Server()
    server.there = False
    with contextlib.suppress(ConnectionLost):
        await server.link.warm()
    assert await server.link.outage() is not None
    server.returns()
    stale(server.link)
    assert await server.link.outage() is None


async def test_a_server_that_answers_nothing_is_an_outage_within_a_bound(
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr("qwen3tts_speech.link.FIRST_WITHIN_S", 0.01)
    server = Server()
    await server.link.warm()
    server.goes()

    async def never(self: Client) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Client, "ready", never)
    assert isinstance(await server.link.outage(), ConnectionLost)


async def test_a_link_that_is_closed_leaves_no_task() -> None:
    server = Server()
    await server.link.warm()
    server.goes()
    asking = asyncio.create_task(server.link.outage())
    await asyncio.sleep(0)
    await server.link.close()
    await asyncio.wait([asking])
    assert await server.link.outage() is None


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qwen3tts_speech.link.FIRST_WITHIN_S", 0.05)


async def stalled(server: Server) -> None:
    """An utterance has found that the server takes text and sends no sound."""
    client = await server.link.client()
    server.mute = True
    server.link.stalled(client)


@pytest.mark.usefixtures("soon")
async def test_a_server_that_accepts_and_sends_no_sound_is_an_outage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server()
    await stalled(server)
    for _ in range(2):
        found = await server.link.outage()
        assert isinstance(found, ConnectionLost)
        assert "no sound" in found.message
        stale(server.link)
    contexts = server.clients[-1].contexts
    assert [context.cancelled_at for context in contexts] == [[0], [0]]
    server.mute = False
    monkeypatch.setattr("qwen3tts_speech.link.FIRST_WITHIN_S", 60.0)
    assert await server.link.outage() is None
    asked = len(contexts)
    assert await server.link.outage() is None
    assert len(contexts) == asked


@pytest.mark.usefixtures("soon")
async def test_a_connection_that_another_utterance_has_made_meanwhile_hides_no_mute_server() -> (
    None
):
    server = Server()
    await stalled(server)
    await server.link.warm()
    assert await server.link.outage() is not None


async def test_a_server_that_refuses_the_voice_after_a_stall_is_none() -> None:
    server = Server()
    await stalled(server)
    client = await server.link.client()

    async def refuse(**options: Any) -> FakeContext:
        raise UnknownVoice("no voice of that name")

    client.open = refuse  # type: ignore[method-assign, assignment]
    assert await server.link.outage() is None
