"""How a client reaches a server, and what it means when that fails."""

from __future__ import annotations

import inspect
import logging
import os
import ssl
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect

from qwen3tts_wire.errors import BadRequest, ConnectionLost, ProtocolError, ServerBusy, SpeechError

API_KEY_ENV = "QWEN3TTS_API_KEY"
"""The key of the server that a client connects to; a server's own are in ``QWEN3TTS_API_KEYS``."""

_own_keys: dict[str, str] = {}
"""Those of the servers that this process has started, by address."""


def know_key(url: str, key: str) -> None:
    """Have all clients of this process show ``key`` to the server at ``url``; empty = no more."""
    if key:
        _own_keys[url] = key
    else:
        _own_keys.pop(url, None)


def key_for(url: str) -> str | None:
    """Return what a client that was given no key shows to the server at ``url``."""
    return _own_keys.get(url) or os.environ.get(API_KEY_ENV)


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


def key_headers(api_key: str | None) -> dict[str, str]:
    """What goes along with a key; raises BadRequest for one that no header can hold."""
    if not api_key:
        return {}
    if not all("!" <= char <= "~" for char in api_key):
        raise BadRequest(
            "The API key is none: it holds something else than visible ASCII characters.",
            remedy=f"Check it, and the environment's {API_KEY_ENV}.",
        )
    return {"Authorization": f"Bearer {api_key}"}


def refused(url: str, status: int) -> SpeechError:
    """What an HTTP answer means that opened no WebSocket."""
    if status == 401:
        return BadRequest(
            f"{url} asks for an API key, or for another one.",
            remedy=f"Put one of the server's keys into the environment's {API_KEY_ENV}.",
        )
    if status in (429, 503):
        return ServerBusy(f"{url} answered HTTP {status}.", remedy="Try again later.")
    return ProtocolError(
        f"{url} answered HTTP {status}, not as a speech server.",
        remedy="Check host, port and path; the path is /v1/speech.",
    )


def not_encrypted(url: str, error: ssl.SSLError) -> SpeechError:
    """What it means that no TLS connection came about."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConnectionLost(
            f"The certificate at {url} is not trusted: {error.verify_message}.",
            remedy="Name the certificate of who signed it in the environment's SSL_CERT_FILE, or"
            " write the host as the certificate has it.",
        )
    return ConnectionLost(
        f"What answers at {url} does not speak TLS as this client does ({error.reason}).",
        remedy="Without TLS an address begins with ws://.",
    )


# websockets 15 and later would take a proxy from the environment.
DIRECT: dict[str, Any] = {"proxy": None} if "proxy" in inspect.signature(connect).parameters else {}
"""Options that make a connection direct."""
