"""The HTTP side of the WebSocket port: which kind a path is, who may come in, the start answers."""

from __future__ import annotations

import http
import logging
from collections.abc import Mapping, Sequence

from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from qwen3tts_phone.handed_calls import RETRY_AFTER_S
from qwen3tts_phone.log_text import MOST_SENTENCE_CHARS, log_text
from qwen3tts_phone.outage import Outages
from qwen3tts_phone.streams.adapter import Handshake, Refused, StreamKind
from qwen3tts_phone.streams.gate import StreamGate

logger = logging.getLogger(__name__)

ANSWER = "answer"
"""``/KIND/answer`` is what a carrier's webhook asks."""


class WebFront:
    """Decides about each request before there is a WebSocket."""

    def __init__(
        self,
        kinds: Mapping[str, StreamKind],
        gate: StreamGate,
        outages: Outages,
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
        """None = it may become a WebSocket; else what is answered."""
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
                        kind.check(handshake)  # what it signs may have expired meanwhile
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
        """The first of the kind's that is offered; a far end that offers none gets none."""
        assert connection.request is not None
        kind, _ = self._kind(self._handshake(connection, connection.request))
        return next((Subprotocol(each) for each in kind.subprotocols if each in offered), None)

    def of(self, connection: ServerConnection) -> tuple[Handshake, StreamKind]:
        """What a connection that was let in has come with."""
        assert connection.request is not None
        handshake = self._handshake(connection, connection.request)
        return handshake, self._kind(handshake)[0]

    # --- inside

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
        """Raise Refused for a webhook where its stream could say nothing."""
        if self._outages.announcement is None and (outage := await self._outages.now()):
            self._outages.turned_away(outage)
            raise Refused(503, "no speech server can be reached")

    def _kind(self, handshake: Handshake) -> tuple[StreamKind, str]:
        """The kind that a path means, and what comes after its name."""
        name, _, rest = handshake.path.strip("/").partition("/")
        kind = self._kinds.get(name)
        if kind is None:
            raise Refused(404, "there is no such path")
        return kind, rest


def _text(raw: str) -> str:
    """Without the half characters that the library makes of bytes beyond ASCII."""
    return raw.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _answered(connection: ServerConnection, kind: StreamKind, handshake: Handshake) -> Response:
    """What starts the stream, for a carrier's webhook."""
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
