"""Streams that this side opens: a WebSocket to a far end's own server."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidURI
from websockets.typing import Subprotocol

from qwen3tts_phone.errors import CalleeUnreachable, CallError
from qwen3tts_phone.streams.adapter import StreamKind
from qwen3tts_phone.streams.settings import CLOSE_S, OPEN_S, StreamSettings
from qwen3tts_phone.streams.wire import UNSENT_BYTES, library_logger


async def open_web(
    url: str,
    kind: StreamKind,
    settings: StreamSettings,
    headers: Mapping[str, str] | None,
    tls: ssl.SSLContext | None,
) -> ClientConnection:
    """A connection to ``url``; raises CalleeUnreachable, CallError."""
    try:
        return await connect(
            url,
            subprotocols=[Subprotocol(each) for each in kind.subprotocols] or None,
            additional_headers=dict(headers or {}),
            ssl=tls,
            compression=None,
            proxy=None,
            open_timeout=OPEN_S,
            close_timeout=CLOSE_S,
            ping_interval=settings.ping_s or None,
            ping_timeout=settings.ping_s or None,
            max_size=settings.max_message_bytes,
            write_limit=UNSENT_BYTES,
            logger=library_logger(),
        )
    except (OSError, TimeoutError) as error:
        raise CalleeUnreachable(
            f"No WebSocket could be opened: {type(error).__name__}.",
            remedy="Check the address, and that the far end listens there.",
            why="refused" if isinstance(error, ConnectionRefusedError) else "timeout",
        ) from error
    except (InvalidHandshake, InvalidURI) as error:
        raise CallError(
            f"No WebSocket could be opened: {type(error).__name__}.",
            remedy="Check the path and the password; the far end's log says more.",
        ) from error
