"""A chat endpoint that does what a test says, over real HTTP on 127.0.0.1."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Uses:
    """The model wants a tool; ``arguments`` as a string is sent as it is."""

    name: str
    arguments: object = field(default_factory=dict)
    id: str = "call_a"
    index: int = 0
    pieces: int = 1
    """In how many deltas the arguments come."""


@dataclass(frozen=True)
class Waits:
    """Nothing comes until the test sets the event."""

    until: asyncio.Event


@dataclass(frozen=True)
class Sleeps:
    """Delay without data, for measurements and not for tests."""

    seconds: float


@dataclass(frozen=True)
class Raw:
    """These bytes, as the data of the stream."""

    data: bytes


class Hangs:
    """Nothing comes any more, and the connection stays open."""


class Breaks:
    """The connection is closed in mid-answer."""


Step = str | Uses | Waits | Sleeps | Raw | Hangs | Breaks


@dataclass(frozen=True)
class Answer:
    """What one request gets: the steps of a stream, or a plain response."""

    steps: Sequence[Step] = ()
    status: int = 200
    body: bytes | None = None
    """Instead of a stream."""
    kind: str = "application/json"
    """Content type of ``body``."""
    finish: str | None = "stop"
    """``finish_reason``; None: the stream has no end of its own."""


def says(*deltas: str) -> Answer:
    """A reply in these deltas."""
    return Answer(deltas)


def writes(text: str, token_s: float = 0.0, first_s: float = 0.0) -> Answer:
    """A reply token by token, as a model writes; for measurements with times."""
    from qwen3tts_phone.call.text_sources import tokens

    steps: list[Step] = [Sleeps(first_s)] if first_s else []
    for token in tokens(text):
        steps.append(token)
        if token_s:
            steps.append(Sleeps(token_s))
    return Answer(steps)


@dataclass
class Request:
    """One that came."""

    body: dict[str, Any]
    headers: dict[str, str]
    at: float
    """Seconds of the loop's clock."""
    first_at: float | None = None
    """When its first delta was sent."""
    dropped: bool = False
    """Whether the client went away before the end."""
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def messages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.body["messages"]
        return found

    @property
    def said(self) -> list[tuple[str, str]]:
        """Role and content of each message but the system's."""
        return [(m["role"], m["content"] or "") for m in self.messages if m["role"] != "system"]


class ChatEndpoint:
    """``async with ChatEndpoint(says("Hello.")) as endpoint: endpoint.url``.

    The answers are given in turn, the last one again and again; ``choose`` picks one by the request
    instead. A check, which asks for one token, gets ``check``.
    """

    def __init__(
        self,
        *answers: Answer,
        choose: Callable[[Request], Answer] | None = None,
        check: Answer | None = None,
        port: int = 0,
    ) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []
        """For replies."""
        self.checks: list[Request] = []
        """For one token."""
        self.models: tuple[str, ...] = ()
        """Names that are listed."""
        self.lists = 0
        """How often the models were asked for."""
        self.hold_lists: asyncio.Event | None = None
        """Where given, their list is sent when it is set."""
        self.connections = 0
        self._check = check or says("Yes")
        self._choose = choose
        self._port = port
        self._came = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> ChatEndpoint:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def asked(self, count: int) -> Request:
        """Wait for the request number ``count``, from 1."""
        async with asyncio.timeout(20), self._came:
            await self._came.wait_for(lambda: len(self.requests) >= count)
        return self.requests[count - 1]

    async def checked(self) -> None:
        """Wait for the first check."""
        async with asyncio.timeout(20), self._came:
            await self._came.wait_for(lambda: bool(self.checks))

    async def listed(self, count: int = 1) -> None:
        """Wait until the models were asked for so often."""
        async with asyncio.timeout(20), self._came:
            await self._came.wait_for(lambda: self.lists >= count)

    # --- inside

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while await self._serve(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        if head[0].startswith("GET "):
            return await self._list(writer)
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        request = Request(
            json.loads(raw) if raw else {}, headers, asyncio.get_running_loop().time()
        )
        if request.body.get("max_tokens") == 1 or request.body.get("max_completion_tokens") == 1:
            answer = self._check
            self.checks.append(request)
        else:
            answer = self._answer_to(request)
            self.requests.append(request)
        async with self._came:
            self._came.notify_all()
        if answer.body is not None or answer.status != 200:
            body = answer.body or b""
            writer.write(
                f"HTTP/1.1 {answer.status} Scripted\r\ncontent-type: {answer.kind}\r\n"
                f"content-length: {len(body)}\r\n\r\n".encode()
                + body
            )
            await writer.drain()
            request.done.set()
            return True
        watch = asyncio.create_task(reader.read(1))
        stream = asyncio.create_task(self._stream(answer, request, writer))
        try:
            await asyncio.wait({watch, stream}, return_when=asyncio.FIRST_COMPLETED)
            if not stream.done():
                request.dropped = True
                return False
            return stream.result()
        except ConnectionError:
            request.dropped = True
            return False
        finally:
            request.done.set()
            for task in (watch, stream):
                task.cancel()
            await asyncio.gather(watch, stream, return_exceptions=True)

    async def _list(self, writer: asyncio.StreamWriter) -> bool:
        self.lists += 1
        async with self._came:
            self._came.notify_all()
        if self.hold_lists is not None:
            await self.hold_lists.wait()
        listed = {"object": "list", "data": [{"id": name} for name in self.models]}
        body = json.dumps(listed).encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(body), body)
        )
        await writer.drain()
        return True

    def _answer_to(self, request: Request) -> Answer:
        if self._choose is not None:
            return self._choose(request)
        return self.answers[min(len(self.requests), len(self.answers) - 1)]

    async def _stream(self, answer: Answer, request: Request, writer: asyncio.StreamWriter) -> bool:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        for step in answer.steps:
            if isinstance(step, Waits):
                await step.until.wait()
            elif isinstance(step, Sleeps):
                await asyncio.sleep(step.seconds)
            elif isinstance(step, Hangs):
                await asyncio.Event().wait()
            elif isinstance(step, Breaks):
                await writer.drain()
                return False
            elif isinstance(step, Raw):
                await _send(writer, step.data)
            else:
                if request.first_at is None:
                    request.first_at = asyncio.get_running_loop().time()
                for delta in _deltas(step):
                    await _send(writer, _event({"delta": delta}))
        if answer.finish is not None:
            await _send(writer, _event({"delta": {}, "finish_reason": answer.finish}))
            await _send(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return False  # one request a connection keeps the watch for hanging up simple


def _deltas(step: str | Uses) -> list[dict[str, Any]]:
    if isinstance(step, str):
        return [{"content": step}]
    written = step.arguments if isinstance(step.arguments, str) else json.dumps(step.arguments)
    size = max(1, -(-len(written) // step.pieces))
    pieces = [written[at : at + size] for at in range(0, len(written), size)] or [""]
    first = {"id": step.id, "type": "function", "function": {"name": step.name, "arguments": ""}}
    return [
        {"tool_calls": [{"index": step.index, **first}]},
        *(
            {"tool_calls": [{"index": step.index, "function": {"arguments": piece}}]}
            for piece in pieces
        ),
    ]


def _event(choice: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, **choice}]}).encode() + b"\n\n"


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))
    await writer.drain()
