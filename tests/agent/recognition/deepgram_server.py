"""A stand-in for Deepgram's streaming interface, as its documentation describes it.

It hears tones: each word is the number of loud tenths of a second that it took. Results come for
each half second of sound (interim), at silence of ``endpointing`` ms, and for ``Finalize``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

BOUND_S = 20.0
KEY = "Token a-key"


class Deepgram:
    """One server; what it was sent, and how it behaves."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[dict[str, list[str]]] = []
        """Parameters of each connection."""
        self.texts: list[list[str]] = []
        """Types of the text messages of each connection."""
        self.seconds: list[float] = []
        """Sound of each connection."""
        self.refuses: tuple[int, str] | None = None
        self.break_after: int | None = None
        """Connections that break at their first Finalize."""
        self.mute_finalize = False
        """Whether Finalize is done and not answered by ``from_finalize``."""
        self.before: list[dict[str, Any] | str | bytes] = []
        """Messages that are sent first."""
        self.news = asyncio.Event()

    def check(self, socket: ServerConnection, request: Request) -> Response | None:
        if request.headers.get("Authorization") != KEY:
            return socket.respond(401, '{"err_code": "INVALID_AUTH"}')
        if self.refuses is not None:
            response = socket.respond(self.refuses[0], "{}")
            response.headers["dg-error"] = self.refuses[1]
            return response
        assert request.headers.get("Sec-WebSocket-Protocol") is None
        self.asked.append(parse_qs(urlsplit(request.path).query))
        return None

    async def call(self, socket: ServerConnection) -> None:
        self.texts.append([])
        self.seconds.append(0.0)
        for message in self.before:
            raw = isinstance(message, str | bytes)
            await socket.send(message if raw else json.dumps(message))
        rate = int(self.asked[-1]["sample_rate"][0])
        stretch = Stretch(rate)
        async for message in socket:
            self.news.set()
            if isinstance(message, bytes):
                stretch.sound = np.concatenate([stretch.sound, np.frombuffer(message, "<i2")])
                self.seconds[-1] += len(message) / 2 / rate
                if stretch.grown():
                    await socket.send(stretch.results(fixed=False))
                continue
            kind = json.loads(message)["type"]
            self.texts[-1].append(kind)
            if kind == "Finalize":
                if self.break_after:
                    self.break_after -= 1
                    await socket.close(1011, "NET-0001")
                    return
                if not self.mute_finalize:
                    await socket.send(stretch.results(fixed=True, from_finalize=True))
            elif kind == "CloseStream":
                await socket.send(json.dumps({"type": "Metadata", "channels": 1}))
                return

    def types(self) -> list[str]:
        return [each for texts in self.texts for each in texts]


class Stretch:
    """The sound that is not fixed yet."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.start_s = 0.0
        self.sound = np.zeros(0, np.int16)
        self._told = 0.0

    def grown(self) -> bool:
        """Whether half a second came since the last results."""
        if len(self.sound) / self.rate - self._told < 0.5:
            return False
        self._told = len(self.sound) / self.rate
        return True

    def results(self, *, fixed: bool, from_finalize: bool = False) -> str:
        """Results of all of it; with ``fixed`` it is done with."""
        duration = len(self.sound) / self.rate
        tenth = self.rate // 10
        frames = self.sound[: len(self.sound) // tenth * tenth].reshape(-1, tenth)
        loud = int((np.abs(frames.astype(int)).max(axis=1, initial=0) > 1000).sum())
        start, text = self.start_s, f"{loud} tenths" if loud else ""
        if fixed:
            self.start_s, self.sound, self._told = start + duration, self.sound[:0], 0.0
        return json.dumps(
            {
                "type": "Results",
                "channel_index": [0, 1],
                "start": start,
                "duration": duration,
                "is_final": fixed,
                "speech_final": fixed,
                "from_finalize": from_finalize,
                "channel": {
                    "alternatives": [{"transcript": text, "confidence": 0.75, "words": []}]
                },
                "metadata": {"request_id": "r", "model_uuid": "m"},
            }
        )


@asynccontextmanager
async def deepgram() -> AsyncIterator[Deepgram]:
    """The server, for `BOUND_S` at the longest."""
    it = Deepgram()
    async with (
        asyncio.timeout(BOUND_S),
        serve(it.call, "127.0.0.1", 0, process_request=it.check, close_timeout=0.2) as server,
    ):
        it.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/listen"
        yield it
