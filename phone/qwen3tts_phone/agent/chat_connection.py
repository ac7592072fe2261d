"""The connection to a language model: opened ahead of a request, and kept after one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine

import httpx

from qwen3tts_phone.agent.chat_settings import ChatSettings

logger = logging.getLogger(__name__)

IDLE_S = 4.0
"""A connection that nobody has used for longer may be closed by the server: uvicorn, with which
many models are served, waits 5 s."""
ANSWER_S = 5.0
"""How long the answer that opens it may take."""
MOST_BYTES = 1 << 20
"""A longer answer is not read to its end, which costs the connection."""
REST_S = 1.0
"""What follows the last word of a reply is waited for so long, so that the connection is kept."""


class ChatConnection:
    """Sees to it that a request finds an open connection; one client's.

    It asks for the list of models, which changes nothing there. Whatever becomes of that, an
    answer, a refusal or nothing, is of no consequence: a request never waits for it, and opens a
    connection of its own where none is free.
    """

    def __init__(self, http: httpx.AsyncClient, settings: ChatSettings) -> None:
        self._http = http
        self._settings = settings
        self._idle_since: float | None = None
        """Since when one is free; None = none is. Seconds of the loop's clock."""
        self._failed_at: float | None = None
        self._opening: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def prepare(self) -> None:
        """A request is likely to come soon: open a connection, unless one was free just now.

        Returns at once, and raises nothing.
        """
        if self._closed or not self._settings.connect_ahead or self._opening is not None:
            return
        now = asyncio.get_running_loop().time()
        for at in (self._idle_since, self._failed_at):
            if at is not None and now - at < IDLE_S:
                return
        self._opening = self._start(self._open(), "open the model's connection")

    def taken(self) -> None:
        """A request goes out on it, and may not give it back."""
        self._idle_since = None

    def keep(self, response: httpx.Response, chunks: AsyncIterator[bytes]) -> None:
        """The last word of ``response`` has come: its connection is for the next request.

        ``chunks`` is what its body is read from. Returns at once.
        """
        self._start(self._read_rest(response, chunks), "end of the model's answer")

    async def close(self) -> None:
        """Give up what is under way."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- inside

    def _start(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _open(self) -> None:
        try:
            async with asyncio.timeout(self._settings.connect_s + ANSWER_S):
                async with self._http.stream("GET", self._settings.models_url) as response:
                    size = 0
                    async for chunk in response.aiter_raw():
                        size += len(chunk)
                        if size > MOST_BYTES:
                            break
            self._failed_at = None
            self._freed()
        except Exception as error:  # nobody waits for it, and the request will tell
            self._failed_at = asyncio.get_running_loop().time()
            logger.debug("the model's connection was not opened ahead: %s", type(error).__name__)
        finally:
            self._opening = None

    async def _read_rest(self, response: httpx.Response, chunks: AsyncIterator[bytes]) -> None:
        try:
            async with asyncio.timeout(REST_S):
                async for _ in chunks:
                    pass
            self._freed()
        except Exception as error:  # what came after the last word is nobody's loss
            logger.debug("the model's connection is not kept: %s", type(error).__name__)
        finally:
            await response.aclose()

    def _freed(self) -> None:
        self._idle_since = asyncio.get_running_loop().time()
