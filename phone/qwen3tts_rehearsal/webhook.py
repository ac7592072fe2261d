"""Receiver of an agent's webhook posts: HTTP on the loopback, for conditions on tool state."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from dataclasses import dataclass
from typing import Self

from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_phone.errors import PortBusy

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
HEAD_BYTES = 1 << 14
BODY_BYTES = 1 << 20
REQUEST_S = 10.0
"""Longest time of one request."""
KEPT = 10_000
KEPT_BYTES = 1 << 26
"""Posts that are kept, and their length; the oldest are dropped."""
MAX_LENGTH_DIGITS = 12
REASONS = {200: "OK", 400: "Bad Request", 405: "Method Not Allowed", 413: "Content Too Large"}


@dataclass(frozen=True, slots=True)
class Received:
    """One post."""

    at: float
    """Seconds of the monotonic clock."""
    path: str
    content: object
    """JSON value."""
    size: int = 0
    """Bytes of the body."""


class WebhookReceiver:
    """HTTP server that keeps posts of JSON; an async context manager.

    Entering raises PortBusy. It answers ``{}`` with 200, or an error as JSON.
    """

    def __init__(self, port: int = 0, *, clock: Clock | None = None) -> None:
        self.posts: list[Received] = []
        self._kept_bytes = 0
        self._port = port
        self._clock: Clock = clock or LoopClock()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}"

    async def __aenter__(self) -> Self:
        try:
            self._server = await asyncio.start_server(
                self._serve, HOST, self._port, limit=HEAD_BYTES
            )
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise PortBusy(
                f"The webhook's port {self._port} cannot be had: {reason}.",
                remedy=PortBusy.remedy_for(error),
            ) from error
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def since(self, at: float) -> list[Received]:
        return [each for each in self.posts if each.at >= at]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_S):
                status, content = await self._request(reader)
                body = json.dumps(content).encode()
                head = (
                    f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: application/json\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                )
                writer.write(head.encode() + body)
                await writer.drain()
        except (TimeoutError, OSError, EOFError) as error:
            logger.debug("a webhook's request broke off: %s", type(error).__name__)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _request(self, reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.LimitOverrunError:
            return 413, {"error": "the header is too long"}
        first, *lines = head.split("\r\n")
        words = first.split(" ")
        if len(words) != 3:
            return 400, {"error": "this is no HTTP request"}
        method, target, _ = words
        fields = {
            name.strip().lower(): value.strip()
            for name, colon, value in (line.partition(":") for line in lines)
            if colon
        }
        if method not in ("POST", "PUT"):
            return 405, {"error": "post JSON here"}
        length = fields.get("content-length", "")
        if not (length.isascii() and length.isdigit() and len(length) <= MAX_LENGTH_DIGITS):
            return 400, {"error": "a Content-Length is needed"}
        if int(length) > BODY_BYTES:
            return 413, {"error": f"at most {BODY_BYTES} bytes are taken"}
        try:
            content = json.loads(await reader.readexactly(int(length)))
        except (ValueError, RecursionError):
            return 400, {"error": "the body is no JSON"}
        self._keep(Received(self._clock.now(), target.partition("?")[0], content, int(length)))
        return 200, {}

    def _keep(self, post: Received) -> None:
        self.posts.append(post)
        self._kept_bytes += post.size
        while len(self.posts) > KEPT or self._kept_bytes > KEPT_BYTES:
            self._kept_bytes -= self.posts.pop(0).size
