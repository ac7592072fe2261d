"""Connecting to a recogniser's server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from typing import Protocol

import websockets
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from qwen3tts_agent.recognition.socket_protocol import (
    MOST_MESSAGE,
    SUBPROTOCOL,
    Failed,
    Outgoing,
    Ready,
    one_line,
    read_answer,
)
from qwen3tts_phone.detection.recogniser import RecogniserUnavailable, RecognitionFailed
from qwen3tts_wire.addresses import DIRECT
from qwen3tts_wire.errors import ProtocolError

PING_S = 10.0
"""Interval of pings, and the time limit of their answers."""


class SocketAddress(Protocol):
    """Settings by which a recogniser's server is reached."""

    @property
    def address(self) -> str: ...

    @property
    def shown(self) -> str: ...

    @property
    def key_variable(self) -> str: ...

    @property
    def open_timeout_s(self) -> float: ...

    def headers(self) -> dict[str, str]: ...


async def dial(settings: SocketAddress, hello: Outgoing | None) -> ClientConnection:
    """Connect; with ``hello`` wait until the server is ready.

    Raises RecogniserUnavailable, RecognitionFailed.
    """
    shown = settings.shown
    try:
        headers = settings.headers()
    except ValueError as error:
        raise RecogniserUnavailable(
            f"The recogniser at {shown}: {error}.",
            remedy=f"Put the key into the environment's {settings.key_variable}.",
        ) from None
    subprotocols = None if hello is None else [websockets.Subprotocol(SUBPROTOCOL)]
    try:
        async with asyncio.timeout(settings.open_timeout_s):
            socket = await connect(
                settings.address,
                subprotocols=subprotocols,
                compression=None,  # speech does not shrink
                max_size=MOST_MESSAGE,
                open_timeout=None,
                ping_interval=PING_S,
                ping_timeout=PING_S,
                close_timeout=2,
                logger=_frames(),
                additional_headers=headers,
                user_agent_header=None,
                **DIRECT,
            )
            try:
                if hello is not None:
                    await _greet(socket, hello)
            except BaseException:
                await socket.close()
                raise
            return socket
    except TimeoutError:
        raise RecognitionFailed(
            f"The recogniser at {shown} was not ready within {settings.open_timeout_s:g} s.",
            remedy='Its server must answer "start" by "ready"; see docs/recognisers.md.'
            if hello is not None
            else "Check the address and the network.",
        ) from None
    except InvalidStatus as error:
        said = one_line(error.response.headers.get("dg-error"))
        raise _refused(settings, error.response.status_code, said) from None
    except (InvalidHandshake, InvalidURI, ValueError):
        raise RecogniserUnavailable(
            f"What answers at {shown} is not a WebSocket.",
            remedy="Check scheme, host, port and path.",
        ) from None
    except ssl.SSLCertVerificationError as error:
        raise RecogniserUnavailable(
            f"The certificate at {shown} is not trusted: {error.verify_message}.",
            remedy="Name the certificate of who signed it in the environment's SSL_CERT_FILE.",
        ) from None
    except ssl.SSLError as error:
        raise RecogniserUnavailable(
            f"What answers at {shown} does not speak TLS ({error.reason}).",
            remedy="Without TLS an address begins with ws://.",
        ) from None
    except OSError as error:
        raise RecognitionFailed(
            f"The recogniser at {shown} cannot be reached: {error.strerror or error}.",
            remedy="Check the address, and whether its server runs.",
        ) from None


async def _greet(socket: ClientConnection, hello: Outgoing) -> None:
    with contextlib.suppress(ConnectionClosed):  # what it said before it closed can be read yet
        for message in hello:
            await socket.send(message)
    try:
        while True:
            match read_answer(await socket.recv()):
                case Ready():
                    return
                case Failed(None, said):
                    raise RecognitionFailed(
                        f"The recogniser accepts no call: {said or 'no reason'}."
                    )
    except ConnectionClosed:
        raise closed(socket) from None
    except ProtocolError as error:
        raise RecogniserUnavailable(error.message, remedy=error.remedy) from None


def closed(socket: ClientConnection) -> RecognitionFailed:
    code = socket.close_code
    said = f" ({code})" if code not in (None, 1005, 1006) else ""
    if code == 1013:
        return RecognitionFailed(f"The recogniser accepts no call now{said}.")
    return RecognitionFailed(
        f"The connection to the recogniser was lost{said}.", remedy="Check its server and its log."
    )


def _refused(
    settings: SocketAddress, status: int, said: str
) -> RecogniserUnavailable | RecognitionFailed:
    shown, because = settings.shown, f": {said}" if said else ""
    if status in (401, 403):
        return RecogniserUnavailable(
            f"The recogniser at {shown} asks for a key, or for another one ({status}){because}.",
            remedy=f"Put it into the environment's {settings.key_variable}.",
        )
    if status == 402:
        return RecogniserUnavailable(
            f"The recogniser at {shown} requires payment ({status}){because}."
        )
    if status == 400:
        return RecogniserUnavailable(
            f"The recogniser at {shown} refused the request ({status}){because}.",
            remedy="Check model, language and the rest of the address.",
        )
    if status == 429 or status >= 500:
        return RecognitionFailed(
            f"The recogniser at {shown} is overloaded or broken ({status}){because}.",
            remedy="Try again later.",
        )
    return RecogniserUnavailable(
        f"What answers at {shown} is not a recogniser (HTTP {status}).",
        remedy="Check scheme, host, port and path.",
    )


def _frames() -> logging.Logger:
    frames = logging.getLogger(f"{__name__}.frames")
    frames.setLevel(max(logging.INFO, logging.getLogger(__name__).getEffectiveLevel()))
    return frames
