"""A recogniser behind a WebSocket that understands by a script; docs/recognisers.md."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from websockets.asyncio.server import ServerConnection, serve
from websockets.typing import Subprotocol


@asynccontextmanager
async def recogniser_server(texts: Sequence[str]) -> AsyncIterator[str]:
    """Its address; each turn of any call is one of the texts, in order, and no more after them."""
    left = list(texts)

    async def understand(connection: ServerConnection) -> None:
        async for message in connection:
            if isinstance(message, bytes):
                continue
            said = json.loads(message)
            if said["type"] == "start":
                await connection.send(json.dumps({"type": "ready"}))
            elif said["type"] == "turn.end":
                text = left.pop(0) if left else ""
                await connection.send(
                    json.dumps({"type": "final", "turn": said["turn"], "text": text})
                )

    async with serve(
        understand, "127.0.0.1", 0, subprotocols=[Subprotocol("qwen3tts.recogniser.v1")]
    ) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
