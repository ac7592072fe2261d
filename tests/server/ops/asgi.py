"""Requests and WebSockets against an ASGI application, without a socket."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass
class Reached:
    """An application that notes what reaches it, and answers."""

    scopes: list[Scope] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.close", "code": 1000})
        elif scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"ok"})


def scope_of(
    kind: str = "http",
    path: str = "/v1/models",
    headers: list[tuple[str, str]] | None = None,
    *,
    client: str | None = "192.0.2.7",
    subprotocols: list[str] | None = None,
    refusable: bool = True,
    **more: Any,
) -> Scope:
    """What a server would hand over."""
    encoded = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers or []]
    scope: dict[str, Any] = {
        "type": kind,
        "path": path,
        "headers": encoded,
        "client": (client, 1) if client is not None else None,
        "query_string": b"",
        **more,
    }
    if kind == "http":
        scope["method"] = "GET"
    else:
        scope["subprotocols"] = subprotocols or []
        scope["extensions"] = {"websocket.http.response": {}} if refusable else {}
    return scope


async def sent_by(app: ASGIApp, scope: Scope, *received: Message) -> list[Message]:
    """All that the application sends for this scope."""
    sent: list[Message] = []
    first = {"type": "websocket.connect" if scope["type"] == "websocket" else "http.request"}
    waiting = list(received) or [first]

    async def receive() -> Message:
        return waiting.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent
