"""What every WebSocket connection does with its socket."""

from __future__ import annotations

import contextlib
from collections.abc import MutableMapping, Sequence
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

GONE = (WebSocketDisconnect, RuntimeError)
"""What a socket raises to whom writes to a client that has left."""


def data_of(event: MutableMapping[str, Any]) -> str | bytes | None:
    """What a received event carries; None when it is the end of the connection."""
    if event["type"] != "websocket.receive":
        return None
    text: str | None = event.get("text")
    if text is not None:
        return text
    data: bytes | None = event.get("bytes")
    return data or b""


async def put(socket: WebSocket, messages: Sequence[str | bytes]) -> bool:
    """Write; False when the client is gone, which the reader learns as well."""
    try:
        for each in messages:
            if isinstance(each, bytes):
                await socket.send_bytes(each)
            else:
                await socket.send_text(each)
    except GONE:
        return False
    return True


async def close(socket: WebSocket, code: int, reason: str) -> None:
    """Close with a frame, if somebody is still there to read it."""
    with contextlib.suppress(*GONE):
        await socket.close(code, reason)
