"""Listening ports of the streams: WebSockets with HTTP, and AudioSocket."""

from __future__ import annotations

import asyncio
import http
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from qwen3tts_phone.call.incoming import RETRY_AFTER_S, SpeechOutages
from qwen3tts_phone.errors import BadCertificate, PortBusy
from qwen3tts_phone.limits import ConnectionLimiter
from qwen3tts_phone.streams.admission import StreamAdmission
from qwen3tts_phone.streams.carriers.adapter import Handshake, Refused, StreamKind
from qwen3tts_phone.streams.connection import UNSENT_BYTES, library_logger
from qwen3tts_phone.streams.settings import (
    CLOSE_TIMEOUT_S,
    LOOPBACK,
    OPEN_TIMEOUT_S,
    StreamSettings,
)
from qwen3tts_settings.key_files import readable_by_others
from qwen3tts_wire.errors import MOST_SENTENCE_CHARS, BadRequest, log_text

logger = logging.getLogger(__name__)

ANSWER = "answer"


class HandshakeHandler:
    def __init__(
        self,
        kinds: Mapping[str, StreamKind],
        gate: StreamAdmission,
        outages: SpeechOutages,
        *,
        secure: bool,
    ) -> None:
        self._kinds = kinds
        self._gate = gate
        self._outages = outages
        self._secure = secure

    async def process_request(
        self, connection: ServerConnection, request: Request
    ) -> Response | None:
        handshake = self._handshake(connection, request)
        try:
            kind, rest = self._kind(handshake)
            wants_answer = rest == ANSWER and "upgrade" not in handshake.headers
            self._gate.check(handshake, token=not wants_answer)
            if kind.check is not None:
                kind.check(handshake)
            if wants_answer:
                if kind.answer is not None:
                    await self._check_speech()
                    if kind.check is not None:
                        kind.check(handshake)  # the signature may have expired meanwhile
                return _answered(connection, kind, handshake)
        except Refused as error:
            logger.warning(
                "a request for a stream was refused: %s",
                log_text(error.reason, MOST_SENTENCE_CHARS),
            )
            response = connection.respond(http.HTTPStatus(error.status), "")
            if error.status == 503:
                response.headers["Retry-After"] = str(RETRY_AFTER_S)
            return response
        return None

    def select_subprotocol(
        self, connection: ServerConnection, offered: Sequence[Subprotocol]
    ) -> Subprotocol | None:
        assert connection.request is not None
        kind, _ = self._kind(self._handshake(connection, connection.request))
        return next((Subprotocol(each) for each in kind.subprotocols if each in offered), None)

    def of(self, connection: ServerConnection) -> tuple[Handshake, StreamKind]:
        assert connection.request is not None
        handshake = self._handshake(connection, connection.request)
        return handshake, self._kind(handshake)[0]

    def _handshake(self, connection: ServerConnection, request: Request) -> Handshake:
        path, _, query = _text(request.path).partition("?")
        headers: dict[str, str] = {}
        for name, value in request.headers.raw_items():
            name, value = name.lower(), _text(value)
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        offered = headers.get("sec-websocket-protocol", "")
        peer = connection.remote_address
        return Handshake(
            path=path,
            query=query,
            headers=headers,
            peer=str(peer[0]) if isinstance(peer, tuple) and peer else "",
            secure=self._secure,
            subprotocols=tuple(each.strip() for each in offered.split(",") if each.strip()),
        )

    async def _check_speech(self) -> None:
        if self._outages.announcement is None and (outage := await self._outages.now()):
            self._outages.turned_away(outage)
            raise Refused(503, "no speech server can be reached")

    def _kind(self, handshake: Handshake) -> tuple[StreamKind, str]:
        name, _, rest = handshake.path.strip("/").partition("/")
        kind = self._kinds.get(name)
        if kind is None:
            raise Refused(404, "there is no such path")
        return kind, rest


def _text(raw: str) -> str:
    return raw.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _answered(connection: ServerConnection, kind: StreamKind, handshake: Handshake) -> Response:
    if kind.answer is None:
        raise Refused(404, f"{kind.name} has no start answer")
    content_type, body = kind.answer(handshake)
    encoded = body.encode()
    headers = Headers()
    headers["Content-Type"] = content_type
    headers["Content-Length"] = str(len(encoded))
    headers["Cache-Control"] = "no-store"
    headers["Connection"] = "close"
    return Response(200, "OK", headers, encoded)


ONLY_GET = (
    b"HTTP/1.1 405 Method Not Allowed\r\nAllow: GET\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)

OnTcp = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OnWeb = Callable[[ServerConnection], Awaitable[None]]


class GetOnlyConnection(ServerConnection):
    """Answers a POST webhook with 405; the library would just close."""

    _begun = False

    def data_received(self, data: bytes) -> None:
        if not self._begun and data.startswith(b"POST "):
            logger.warning("a webhook came by POST: set its method to GET at the carrier")
            self.transport.write(ONLY_GET)
            self.transport.close()
            return
        self._begun = True
        super().data_received(data)


async def listen_websocket(
    settings: StreamSettings, door: ConnectionLimiter, front: HandshakeHandler, connection: OnWeb
) -> list[Server]:
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
            open_timeout=OPEN_TIMEOUT_S,
            close_timeout=CLOSE_TIMEOUT_S,
            ping_interval=settings.ping_s or None,
            ping_timeout=settings.ping_s or None,
            max_size=settings.max_message_bytes,
            write_limit=UNSENT_BYTES,
            logger=library_logger(),
            create_connection=GetOnlyConnection,
        )
        for sock in _bound(door, settings.host, settings.port)
    ]


async def listen_tcp(
    settings: StreamSettings, door: ConnectionLimiter, port: int, connection: OnTcp
) -> list[asyncio.Server]:
    return [
        await asyncio.start_server(connection, sock=sock)
        for sock in _bound(door, settings.host, port)
    ]


def _bound(door: ConnectionLimiter, host: str, port: int) -> list[socket.socket]:
    try:
        return door.listen(host, port)
    except OSError as error:
        raise _busy(host, port, error) from error


def require_authentication(settings: StreamSettings, kinds: Iterable[StreamKind]) -> None:
    """Raise BadRequest for a carrier's kind without authentication.

    A loopback bind does not help: a tunnel or proxy may lead there.
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


def warn_unauthenticated(
    settings: StreamSettings, kinds: Iterable[StreamKind], port: int, audiosocket_port: int
) -> None:
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
        f"Port {port} at {host} is not available: {os.strerror(error.errno or 0)}.",
        remedy=PortBusy.remedy_for(error),
    )
