"""Servers that a command on this thread can ask: they run in a thread of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

from qwen3tts_server.run import running_server
from tests.agent.endpoint import Answer, ChatEndpoint, says
from tests.e2e.recogniser_server import recogniser_server
from tests.engine.fake_engine import FakeEngine


class Servers:
    """A speech server and a recogniser, and language models as tests need them, in a thread."""

    def __init__(self, *heard: str) -> None:
        """``heard``: what the recogniser understands, turn by turn."""
        self._heard = heard
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._stack = AsyncExitStack()
        self.speech = ""
        self.recogniser = ""

    def __enter__(self) -> Servers:
        self._thread.start()
        self._within(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._within(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()

    async def _start(self) -> None:
        server = await self._stack.enter_async_context(running_server(FakeEngine()))
        self.speech = server.url
        self.recogniser = await self._stack.enter_async_context(recogniser_server(self._heard))

    def wait_for_check(self, endpoint: ChatEndpoint) -> None:
        """Return when it is asked for one token."""
        self._within(endpoint.checked())

    def _within(self, work: object) -> object:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)  # type: ignore[arg-type]

    @contextmanager
    def model(
        self, check: Answer | None = None, *, reply: Answer | None = None
    ) -> Iterator[ChatEndpoint]:
        """A language model."""
        endpoint = ChatEndpoint(reply or says("Hello."), check=check)
        self._within(endpoint.__aenter__())
        try:
            yield endpoint
        finally:
            self._within(endpoint.__aexit__())
