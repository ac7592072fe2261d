from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import pytest
from websockets.protocol import State

from qwen3tts_phone.streams import connection as wire
from qwen3tts_phone.streams.connection import WebSocketConnection, socket_address
from tests.fakes import settle


class SlowConnection:
    """Accepts a message immediately, and lets the sender wait until the test says so."""

    remote_address = ("192.0.2.1", 4000)
    state = State.OPEN

    def __init__(self) -> None:
        self.sent: list[object] = []
        self.drained = asyncio.Event()
        self.transport = self

    def get_extra_info(self, name: str) -> None:
        return None

    async def send(self, message: object) -> None:
        self.sent.append(message)
        await self.drained.wait()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowConnection:
    def broadcast(connections: Iterable[SlowConnection], message: object) -> None:
        for each in connections:
            each.sent.append(message)

    monkeypatch.setattr(wire, "broadcast", broadcast)
    return SlowConnection()


async def test_what_is_sent_at_once_never_comes_between_messages_that_wait(
    slow: SlowConnection,
) -> None:
    connection = WebSocketConnection(cast(Any, slow))
    sending = asyncio.ensure_future(connection.send(["sound 1", "sound 2", "mark"]))
    await settle()
    connection.send_now(["clear"])
    assert slow.sent == ["sound 1", "sound 2", "mark", "clear"]
    assert not sending.done()
    slow.drained.set()
    await sending


async def test_on_a_connection_that_closes_nothing_is_sent_or_waited_for(
    slow: SlowConnection,
) -> None:
    slow.state = State.CLOSING
    await WebSocketConnection(cast(Any, slow)).send(["sound"])
    assert slow.sent == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (("192.0.2.1", 5), "192.0.2.1:5"),
        (("2001:db8::1", 5, 0, 0), "[2001:db8::1]:5"),
        ("/run/socket", ""),
        (None, ""),
    ],
)
def test_addresses_are_written_with_their_port(name: object, text: str) -> None:
    assert socket_address(name) == text
