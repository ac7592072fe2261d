"""Speech servers that come and go as a test says, without a network."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, cast

from qwen3tts_wire.client import SpeechClient
from qwen3tts_wire.errors import ConnectionLost, SpeechError
from tests.speech.fakes import FakeContext
from tests.wire.pair import GREETING

MAIN, OTHER = "ws://main/v1/speech", "ws://other/v1/speech"


class Client:
    """A client, as far as a connection looks at it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.session = GREETING
        self.draining = asyncio.Event()
        self.idle = True
        self.closed = False
        self.elsewhere = False
        self.contexts: list[FakeContext] = []
        self.mute = True
        """Whether its server takes text and sends no sound."""
        self._gone = asyncio.Event()
        self._found: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def lose(self) -> None:
        self._gone.set()

    def find(self, error: SpeechError | None = None) -> None:
        """The search for another server at the address ends."""
        if error is not None:
            self._found.set_exception(error)
            return
        self._gone.clear()
        self._found.set_result(None)
        self._found = asyncio.get_running_loop().create_future()

    @property
    def connected(self) -> bool:
        return not self._gone.is_set() and not self.closed and not self.draining.is_set()

    async def away(self) -> None:
        await self._gone.wait()

    async def ready(self) -> None:
        if not self.connected:
            await asyncio.shield(self._found)

    async def open(self, **options: Any) -> FakeContext:
        self.contexts.append(context := FakeContext())
        if not self.mute:
            context.start()
            context.sound(20)
        return context

    async def close(self) -> None:
        self.closed = True
        self._gone.set()


class Servers:
    """What answers at which address."""

    def __init__(self, *there: str) -> None:
        self.there = set(there)
        self.hanging: set[str] = set()
        """Addresses that take a connection and never answer."""
        self.broken: Exception | None = None
        self.made: list[Client] = []
        self.attempts: Counter[str] = Counter()

    async def connect(self, url: str) -> SpeechClient:
        self.attempts[url] += 1
        if url in self.hanging:
            await asyncio.Event().wait()
        if self.broken is not None:
            raise self.broken
        if url not in self.there:
            raise ConnectionLost(f"No speech server answers at {url}.", remedy="Start one.")
        self.made.append(Client(url))
        return cast(SpeechClient, self.made[-1])

    def lose(self, url: str) -> None:
        """It is gone, with all connections to it."""
        self.there.discard(url)
        for client in self.made:
            if client.url == url:
                client.lose()
