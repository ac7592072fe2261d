"""One connection of a page, when the page does not do its part."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import WSMessage, WSMsgType

from qwen3tts_phone.softphone import connection
from qwen3tts_phone.softphone.connection import PageConnection
from qwen3tts_phone.softphone.messages import Hello, Ping, encoded
from qwen3tts_phone.softphone.session import PageSession


class Desk:
    """Of one session without calls."""

    gateway = None
    now_ms = 0.0
    settings = SimpleNamespace(resume_s=1.0)

    def __init__(self) -> None:
        self.clock = SimpleNamespace(now=lambda: 0.0, sleep_until=self.never)

    def welcome(self, session: str, **_: object) -> Ping:
        return Ping(0.0)

    async def never(self, when: float) -> None:
        await asyncio.get_running_loop().create_future()


class Front:
    """Admits everybody."""

    def __init__(self) -> None:
        self.made = PageSession(cast(Any, Desk()))

    def admit(self, token: str, address: str) -> None:
        pass

    async def refresh(self) -> None:
        pass

    def session(self, resume: str | None, address: str, program: str) -> tuple[PageSession, bool]:
        return self.made, False


class Deaf:
    """The socket of a page that says one thing after the other, and takes nothing."""

    closed = False

    def __init__(self) -> None:
        self.aborted = asyncio.Event()
        self.said = 0

    async def receive(self) -> WSMessage:
        await asyncio.sleep(0)
        if self.aborted.is_set():
            return WSMessage(WSMsgType.CLOSED, None, None)
        self.said += 1
        message = Hello("token") if self.said == 1 else Ping(1.0)
        return WSMessage(WSMsgType.TEXT, encoded(message), None)

    async def send_str(self, text: str) -> None:
        await self.aborted.wait()
        raise ConnectionResetError

    async def close(self, *, code: int) -> None:
        await self.aborted.wait()


async def test_a_page_that_talks_and_takes_nothing_does_not_keep_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "SEND_S", 0.05)
    front, socket = Front(), Deaf()
    page = PageConnection(front, "192.0.2.9", "", 5.0)
    page.abort = socket.aborted.set
    async with asyncio.timeout(20):
        await page.serve(cast(Any, socket))
    assert socket.said > 1
    front.made.close()
    await front.made.ended()


async def test_a_page_that_does_not_take_the_goodbye_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "CLOSE_S", 0.05)
    socket = Deaf()
    page = PageConnection(Front(), "192.0.2.9", "", 5.0)
    page.socket = cast(Any, socket)
    page.abort = socket.aborted.set
    async with asyncio.timeout(20):
        await page.leave()
    assert socket.aborted.is_set()
