"""One answer on its way: sent in pieces, bounded in time, given up when the client goes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from starlette.types import Message, Receive, Send

PIECE_BYTES = 1 << 16
"""Of one message: the client has to take so much within the time."""


class Stalled(Exception):
    """The client takes nothing."""


class Sending:
    """An HTTP answer. An answer that is never ended is cut off, so that the client knows.

    Raises:
        Stalled: the client took nothing for ``timeout_s`` seconds.
    """

    def __init__(self, send: Send, timeout_s: float) -> None:
        self._send = send
        self._timeout_s = timeout_s
        self.started = False
        """Whether the status is out."""

    async def start(self, content_type: str, headers: Mapping[str, str]) -> None:
        """Status 200 and headers."""
        self.started = True
        fields = {"Content-Type": content_type, **headers}
        await self._put(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [
                    (name.lower().encode("latin-1"), value.encode("latin-1"))
                    for name, value in fields.items()
                ],
            }
        )

    async def body(self, data: bytes) -> None:
        """Some of the body."""
        for at in range(0, len(data), PIECE_BYTES):
            piece = data[at : at + PIECE_BYTES]
            await self._put({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self) -> None:
        """Nothing more."""
        await self._put({"type": "http.response.body", "body": b"", "more_body": False})

    async def _put(self, message: Message) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._send(message)
        except TimeoutError:
            raise Stalled from None


async def until_gone(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Do the work of an answer; when its client goes first, cancel it and wait for its end."""
    working = asyncio.create_task(work, name="answer a request")
    leaving = asyncio.create_task(_left(receive), name="wait for a client to go")
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
