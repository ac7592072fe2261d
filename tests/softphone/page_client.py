"""A page without a browser: its WebSocket, and aiortc in place of WebRTC."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import aiohttp

from qwen3tts_phone.softphone.messages import PROTOCOL
from qwen3tts_phone.softphone.server import Softphone
from tests.softphone.far_browser import FarBrowser


class PageClient:
    """Sends a page's messages, and keeps the answers."""

    def __init__(self, softphone: Softphone, http: aiohttp.ClientSession) -> None:
        self.softphone = softphone
        self.http = http
        self.base = f"{softphone.scheme}://127.0.0.1:{softphone.port}"
        self.told: list[dict[str, Any]] = []
        self.socket: aiohttp.ClientWebSocketResponse
        self.session = ""

    @property
    def headers(self) -> dict[str, str]:
        """Of an upload or a download."""
        return {"Authorization": f"Bearer {self.softphone.token}", "Origin": self.base}

    async def open(self) -> Self:
        """Connect, and say nothing yet."""
        self.socket = await self.http.ws_connect(
            f"{self.base}/ws", protocols=[PROTOCOL], headers={"Origin": self.base}
        )
        return self

    async def hello(self, *, resume: str | None = None) -> dict[str, Any]:
        """Say hello; the server's answer."""
        more = {} if resume is None else {"resume": resume}
        await self.send("hello", token=self.softphone.token, **more)
        welcome = await self.until("hello")
        self.session = welcome["session"]
        return welcome

    async def send(self, kind: str, **fields: Any) -> None:
        """One message."""
        await self.socket.send_str(json.dumps({"type": kind, **fields}))

    async def next(self) -> dict[str, Any]:
        """The next message."""
        message = await self.socket.receive()
        assert message.type is aiohttp.WSMsgType.TEXT, message
        told: dict[str, Any] = json.loads(message.data)
        self.told.append(told)
        return told

    async def until(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The next message of that type with these fields."""
        while True:
            told = await self.next()
            if told["type"] == kind and all(
                told.get(name) == each for name, each in fields.items()
            ):
                return told

    async def closed(self) -> int | None:
        """Wait for the close; its code. What comes before it is kept."""
        async for message in self.socket:
            self.told.append(json.loads(message.data))
        return self.socket.close_code

    async def lose(self) -> None:
        """The network is gone, without a closing handshake."""
        transport = self.socket._conn.transport if self.socket._conn is not None else None
        assert transport is not None
        transport.abort()  # type: ignore[attr-defined, unused-ignore]

    async def call(self, far: FarBrowser, **fields: Any) -> dict[str, Any]:
        """Call, and wait until it is up; the server's answer."""
        await self.send("call", sdp=await far.offer(), **fields)
        answer = await self.until("answer")
        await far.connect(answer["sdp"])
        await self.until("state", state="up")
        return answer

    async def type(self, number: int, *pieces: str) -> None:
        """A whole typed utterance."""
        for piece in pieces:
            await self.send("type", utterance=number, text=piece)
        await self.send("type_end", utterance=number)


@asynccontextmanager
async def page_client(softphone: Softphone) -> AsyncIterator[PageClient]:
    """One that has said hello."""
    async with aiohttp.ClientSession() as http:
        page = await PageClient(softphone, http).open()
        await page.hello()
        yield page
