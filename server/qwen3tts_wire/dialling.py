"""How a client reaches a server, and what it means when that fails."""

from __future__ import annotations

import inspect
import logging
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect

from .errors import BadRequest, ConnectionLost, ProtocolError, ServerBusy, SpeechError


def check_address(url: str) -> None:
    """Raise BadRequest for what is no address of a speech server."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("ws", "wss") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not close, a port that there is not
        good = False
    if not good:
        raise BadRequest(
            f"{url!r} is not the address of a speech server.",
            remedy="It looks like ws://127.0.0.1:8765/v1/speech.",
        )


def frame_log() -> logging.Logger:
    """Where the library below writes; never what is said, which it would write while debugging."""
    client = logging.getLogger("qwen3tts_wire.client")
    frames = client.getChild("frames")
    frames.setLevel(max(logging.INFO, client.getEffectiveLevel()))
    return frames


def closed(socket: ClientConnection) -> SpeechError:
    """Why the server closed, as an error with its remedy."""
    code, reason = socket.close_code, socket.close_reason or ""
    said = f" ({code} {reason})".rstrip() if code not in (None, 1005, 1006) else ""
    if code == 1013:
        return ServerBusy(f"The server takes no connection now{said}.", remedy="Try again later.")
    if code == 1002:
        return ProtocolError(f"The server refused the protocol{said}.")
    if code == 1012:
        return ConnectionLost(f"The server is stopping{said}.", remedy="Connect again.")
    return ConnectionLost(
        f"The connection to the server is lost{said}.", remedy="Check the server and connect again."
    )


def refused(url: str, status: int) -> SpeechError:
    """What an HTTP answer means that opened no WebSocket."""
    if status in (429, 503):
        return ServerBusy(f"{url} answered HTTP {status}.", remedy="Try again later.")
    return ProtocolError(
        f"{url} answered HTTP {status}, not as a speech server.",
        remedy="Check host, port and path; the path is /v1/speech.",
    )


# websockets 15 and later would take a proxy from the environment.
DIRECT: dict[str, Any] = {"proxy": None} if "proxy" in inspect.signature(connect).parameters else {}
"""Options that make a connection direct."""
