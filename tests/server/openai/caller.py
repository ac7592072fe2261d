"""One HTTP request to the application, each step of it by hand: no sockets, no waiting."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI
from starlette.types import Message

from qwen3tts_engine.base import Engine
from qwen3tts_engine.recogniser import Recogniser, TranscribedStretch
from qwen3tts_server.app import create_app
from qwen3tts_server.service import Service
from qwen3tts_server.settings import ServerSettings
from tests.engine.fake_engine import FakeEngine

SPEECH = "/v1/audio/speech"


@dataclass
class Answer:
    """What came back, as far as it has come."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[bytes] = field(default_factory=list)
    complete: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error in it; checks its shape."""
        body = self.json()
        assert set(body) == {"error"}
        error: dict[str, Any] = body["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
        return error

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events in it, as far as they have come."""
        assert self.headers["content-type"] == "text/event-stream"
        found = []
        for block in self.body.decode().split("\n\n")[:-1]:
            kind, data = block.split("\n")
            found.append(json.loads(data.removeprefix("data: ")))
            assert kind == f"event: {found[-1]['type']}"
        return found


class Call:
    """One request under way."""

    def __init__(
        self,
        app: FastAPI,
        method: str,
        path: str,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        *,
        chunk: int | None = None,
        complete: bool = True,
    ) -> None:
        """``chunk``: the body comes in pieces of so many bytes; ``complete``: all of it comes."""
        self.answer = Answer()
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        step = chunk or max(1, len(body))
        for at in range(0, max(1, len(body)), step):
            more = at + step < len(body) or not complete
            piece = body[at : at + step]
            self._inbox.put_nowait({"type": "http.request", "body": piece, "more_body": more})
        self.taking = asyncio.Event()
        """Cleared, the client takes nothing."""
        self.taking.set()
        self._news = asyncio.Event()
        sent = {"host": "test", **(headers or {})}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.lower().encode(), text.encode()) for name, text in sent.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "state": {},
        }
        self.task = asyncio.create_task(app(scope, self._inbox.get, self._send))

    async def _send(self, message: Message) -> None:
        await self.taking.wait()
        answer = self.answer
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            for name, value in message["headers"]:
                assert name == name.lower()
                answer.headers[name.decode()] = value.decode("latin-1")
        else:
            assert answer.status
            assert not answer.complete
            answer.pieces.append(message.get("body", b""))
            answer.complete = not message.get("more_body", False)
        self._news.set()

    async def some(self, pieces: int = 1) -> Answer:
        """Wait until this many bytes of the body have come."""
        while len(self.answer.pieces) < pieces:
            self._news.clear()
            await self._news.wait()
        return self.answer

    async def done(self) -> Answer:
        """Wait until the application is done with it."""
        await self.task
        return self.answer

    async def leave(self) -> None:
        """Go, and wait until the application is done with it."""
        self._inbox.put_nowait({"type": "http.disconnect"})
        await self.task


class Caller:
    """A client of one application."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        self.service: Service = app.state.service

    def speaking(self, headers: dict[str, str] | None = None, **fields: Any) -> Call:
        """A request to speak, under way."""
        body = json.dumps({"input": "Hello there.", **fields}).encode()
        return Call(self.app, "POST", SPEECH, body, {**JSON, **(headers or {})})

    async def speak(self, headers: dict[str, str] | None = None, **fields: Any) -> Answer:
        """A request to speak, answered."""
        return await self.speaking(headers, **fields).done()

    async def send(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        """Any request, answered."""
        return await Call(self.app, method, path, body, headers).done()


JSON = {"content-type": "application/json"}


@contextlib.asynccontextmanager
async def calling(engine: Engine, settings: ServerSettings | None = None) -> AsyncIterator[Caller]:
    """An application that is ready, and its client; checks that nothing is left behind."""
    app = create_app(engine, settings)
    caller = Caller(app)
    async with app.router.lifespan_context(app):
        yield caller
        assert caller.service.connections == 0


async def until(condition: Callable[[], bool]) -> None:
    """Let every task run until it is so."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")


class FakeRecogniser:
    """Hears two stretches in everything."""

    model = "openai/whisper-fake"

    def __init__(self) -> None:
        self.asked: list[tuple[bytes, str | None, float]] = []
        self.error: Exception | None = None
        self.go = threading.Event()
        """Cleared, hearing waits for it."""
        self.go.set()
        self.began = threading.Event()
        self.stopped: Callable[[], bool] = lambda: False

    def hear(
        self, audio: bytes, language: str | None, *, max_s: float, stopped: Callable[[], bool]
    ) -> tuple[float, Sequence[TranscribedStretch]]:
        self.asked.append((audio, language, max_s))
        self.stopped = stopped
        self.began.set()
        assert self.go.wait(20)
        if self.error is not None:
            raise self.error
        return 31.25, (
            TranscribedStretch(0.0, 25.5, "Guten Tag."),
            TranscribedStretch(25.5, 31.25, "Auf Wiedersehen."),
        )


class Hearing(FakeEngine):
    """An engine that has one beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.whisper = FakeRecogniser()

    def recogniser(self) -> Recogniser | None:
        return self.whisper
