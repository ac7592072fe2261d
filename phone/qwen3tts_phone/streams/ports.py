"""The ports that streams come to: one for all WebSockets, one for AudioSocket."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable

from websockets.asyncio.server import Server, ServerConnection, serve

from qwen3tts_phone.errors import BadCertificate, PortBusy
from qwen3tts_phone.listening_sockets import Door
from qwen3tts_phone.streams.adapter import StreamKind
from qwen3tts_phone.streams.settings import CLOSE_S, LOOPBACK, OPEN_S, StreamSettings
from qwen3tts_phone.streams.web_front import WebFront
from qwen3tts_phone.streams.wire import UNSENT_BYTES, library_logger
from qwen3tts_settings.own_files import readable_by_others
from qwen3tts_wire.errors import BadRequest

logger = logging.getLogger(__name__)

ONLY_GET = (
    b"HTTP/1.1 405 Method Not Allowed\r\nAllow: GET\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)

OnTcp = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OnWeb = Callable[[ServerConnection], Awaitable[None]]


class FrontConnection(ServerConnection):
    """Says so where a webhook comes by POST: the library would close without a word."""

    _begun = False

    def data_received(self, data: bytes) -> None:
        """The first bytes of a request, or further ones."""
        if not self._begun and data.startswith(b"POST "):
            logger.warning("a webhook came by POST: set its method to GET at the carrier")
            self.transport.write(ONLY_GET)
            self.transport.close()
            return
        self._begun = True
        super().data_received(data)


async def listen_web(
    settings: StreamSettings, door: Door, front: WebFront, connection: OnWeb
) -> list[Server]:
    """Raises PortBusy, BadCertificate."""
    tls = _tls(settings)
    return [
        await serve(
            connection,
            sock=sock,
            ssl=tls,
            process_request=front.process_request,
            select_subprotocol=front.select_subprotocol,
            compression=None,
            server_header=None,
            open_timeout=OPEN_S,
            close_timeout=CLOSE_S,
            ping_interval=settings.ping_s or None,
            ping_timeout=settings.ping_s or None,
            max_size=settings.max_message_bytes,
            write_limit=UNSENT_BYTES,
            logger=library_logger(),
            create_connection=FrontConnection,
        )
        for sock in _bound(door, settings.host, settings.port)
    ]


async def listen_tcp(
    settings: StreamSettings, door: Door, port: int, connection: OnTcp
) -> list[asyncio.Server]:
    """Raises PortBusy."""
    return [
        await asyncio.start_server(connection, sock=sock)
        for sock in _bound(door, settings.host, port)
    ]


def _bound(door: Door, host: str, port: int) -> list[socket.socket]:
    try:
        return door.listen(host, port)
    except OSError as error:
        raise _busy(host, port, error) from error


def refuse_open_doors(settings: StreamSettings, kinds: Iterable[StreamKind]) -> None:
    """Raise BadRequest for a carrier's kind that anybody could connect to.

    Carriers come from the internet, also where the port is bound to this machine and a tunnel or
    proxy leads there: the bound address says nothing about who connects.
    """
    if settings.token or settings.insecure:
        return
    for kind in kinds:
        if kind.check is None and kind.needs_key:
            raise BadRequest(
                f"kinds: {kind.name} has no key, so anybody who finds its address could talk to "
                "the agent at your cost.",
                remedy=f"Set {kind.needs_key}, or a token that its streams show; insecure starts "
                "it as it is.",
            )


def warn_of_open_doors(
    settings: StreamSettings, kinds: Iterable[StreamKind], port: int, audiosocket_port: int
) -> None:
    """Say in the log what anybody may connect to."""
    for kind in kinds:
        if kind.check is None and kind.needs_key and not settings.token:
            logger.warning(
                "%s is served without a key (insecure): anybody who finds port %d may connect",
                kind.name,
                port,
            )
    if settings.host in (LOOPBACK, "::1", "localhost") or settings.allow:
        return
    if audiosocket_port:
        logger.warning(
            "AudioSocket has no password: anybody who reaches port %d may connect; set allow",
            audiosocket_port,
        )
    for kind in kinds:
        if kind.check is None and not kind.needs_key and not settings.token:
            logger.warning(
                "anybody who reaches port %d may connect as %s: no key of it is known; set a "
                "token or allow",
                port,
                kind.name,
            )


def _tls(settings: StreamSettings) -> ssl.SSLContext | None:
    """What the WebSocket port shows; raises BadCertificate."""
    if settings.certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.certificate, settings.key)
    except OSError as error:  # ssl.SSLError is one
        raise BadCertificate(
            f"The certificate of the streams' port cannot be used: {type(error).__name__}.",
            remedy="Give the PEM files of a certificate with its chain and of its key.",
        ) from error
    secret = settings.key or settings.certificate
    if who := readable_by_others(secret):
        logger.warning("the private key %s can be read by %s; chmod 600", secret, who)
    return context


def _busy(host: str, port: int, error: OSError) -> PortBusy:
    return PortBusy(
        f"Port {port} at {host} cannot be had: {os.strerror(error.errno or 0)}.",
        remedy=PortBusy.remedy_for(error),
    )
