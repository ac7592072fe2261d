"""One log line for every request and every WebSocket, and its id in all lines about it."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .gate import path_of
from .logs import request_id

log = logging.getLogger("qwen3tts_server.access")

QUIET = frozenset({"/health", "/ready", "/metrics"})
"""Asked for every few seconds; told at debug level alone."""
MAX_PATH_CHARS = 128
_GOOD_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")


class AccessLog:
    """Pure ASGI. A request keeps the ``X-Request-Id`` that it came with, else gets one; it is in
    ``scope["state"]["request_id"]``, in the answer's headers and in the log. The query of an
    address is not written: some clients put keys there."""

    def __init__(self, app: ASGIApp, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, one WebSocket, or the application's start and end."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        entry = _Entry(scope, self._clock())
        # In the scope itself: the answer to what breaks is made outside of all middleware.
        scope.setdefault("state", {})["request_id"] = entry.id
        token = request_id.set(entry.id)

        async def receiving() -> Message:
            message = await receive()
            entry.received(message)
            return message

        async def sending(message: Message) -> None:
            await send(entry.sent(message))

        try:
            await self._app(scope, receiving, sending)
        except BaseException:
            entry.broke = True
            raise
        finally:
            entry.write(self._clock())
            request_id.reset(token)


class _Entry:
    """What becomes of one request or WebSocket."""

    def __init__(self, scope: Scope, now: float) -> None:
        given = [value.decode("latin-1") for key, value in scope["headers"] if key == _ID_HEADER]
        good = len(given) == 1 and _GOOD_ID.fullmatch(given[0])
        self.id = given[0] if good else uuid.uuid4().hex[:16]
        self.broke = False
        self._scope = scope
        self._started = now
        self._status: int | None = None
        self._in = self._out = 0

    def received(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.request":
            self._in += len(message.get("body") or b"")
        elif kind == "websocket.receive":
            self._in += len(message.get("bytes") or message.get("text") or b"")
        elif kind == "websocket.disconnect" and self._status in (None, 101):
            self._status = message.get("code", 1005)

    def sent(self, message: Message) -> Message:
        kind = message["type"]
        if kind in ("http.response.start", "websocket.http.response.start"):
            self._status = message["status"]
            message = self._with_id(message)
        elif kind == "websocket.accept":
            self._status = 101
            message = self._with_id(message)
        elif kind in ("http.response.body", "websocket.http.response.body"):
            self._out += len(message.get("body") or b"")
        elif kind == "websocket.send":
            self._out += len(message.get("bytes") or message.get("text") or b"")
        elif kind == "websocket.close":
            self._status = message.get("code", 1000) if self._status == 101 else 403
        return message

    def _with_id(self, message: Message) -> Message:
        headers = [(key, value) for key, value in message.get("headers") or ()]
        if not any(key.lower() == _ID_HEADER for key, _ in headers):
            headers.append((_ID_HEADER, self.id.encode()))
        return {**message, "headers": headers}

    def write(self, now: float) -> None:
        scope = self._scope
        path = path_of(scope)
        level = logging.DEBUG if path in QUIET else logging.INFO
        if not log.isEnabledFor(level):
            return
        shown = "".join(char if "!" <= char <= "~" else "?" for char in path[:MAX_PATH_CHARS])
        method = scope["method"] if scope["type"] == "http" else "WEBSOCKET"
        client = scope.get("client")
        status = 500 if self.broke and self._status is None else self._status
        fields = {
            "status": status,
            "ms": round((now - self._started) * 1000, 1),
            "bytes_in": self._in,
            "bytes_out": self._out,
            "client": client[0] if client else "",
        }
        told = {"fields": fields, "request": self.id}
        log.log(level, "%s %s", method[:16], shown, extra=told)


_ID_HEADER = b"x-request-id"
