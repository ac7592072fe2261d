"""Web application of the softphone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import BodyPartReader, StreamReader, web
from aiohttp.typedefs import Handler, Middleware

from qwen3tts_phone.errors import traceback_without_message
from qwen3tts_phone.softphone.access import (
    AllowedHosts,
    BadToken,
    BrowserRequest,
    ProxyHeaders,
    SlowDown,
    TokenCheck,
    WrongPlace,
    bearer_token,
)
from qwen3tts_phone.softphone.connection import PageConnection
from qwen3tts_phone.softphone.engines import MAX_TEXT_CHARS, ReferenceVoice, clone_voice
from qwen3tts_phone.softphone.messages import PROTOCOL, read_leave
from qwen3tts_phone.softphone.services import SoftphoneServices
from qwen3tts_phone.softphone.session import PageSession
from qwen3tts_wire.errors import BadRequest, LimitExceeded, ServerBusy, SpeechError

if TYPE_CHECKING:
    from collections.abc import Callable


FOLDER = Path(__file__).parent / "page"
KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
}
INDEX = "index.html"


@dataclass(frozen=True, slots=True)
class PageFile:
    body: bytes
    kind: str


def page_files(folder: Path = FOLDER) -> Mapping[str, PageFile]:
    return {
        path.name: PageFile(path.read_bytes(), KINDS[path.suffix])
        for path in sorted(folder.iterdir())
        if path.is_file() and path.suffix in KINDS
    }


logger = logging.getLogger(__name__)

HEARTBEAT_S = 6.0
"""Interval of pings; a page that does not answer within half of it is disconnected."""
UPLOAD_S = 60.0
LEAVE_BYTES = 4096
LEAVE_S = 5.0
STATUS = {
    "bad_token": 401,
    "wrong_place": 403,
    "no_such_recording": 404,
    "no_such_engine": 404,
    "cannot_clone": 409,
    "limit_exceeded": 413,
    "bad_request": 422,
    "slow_down": 429,
    "server_busy": 503,
    "connection_lost": 503,
    "engine_unavailable": 503,
}
HEADERS = {
    "Server": "mr-qwen3tts",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
POLICY = (
    "default-src 'self'; connect-src 'self' {socket}; media-src 'self' blob:;"
    " img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)
"""Content-Security-Policy; for some browsers a WebSocket of the same host is not ``self``."""


class SoftphoneSite:
    def __init__(
        self,
        services: SoftphoneServices,
        access: TokenCheck,
        hosts: AllowedHosts,
        proxy: ProxyHeaders,
        admitted: Callable[[object], None] = lambda address: None,
    ) -> None:
        self.sessions: dict[str, PageSession] = {}
        self._services = services
        self._access = access
        self._hosts = hosts
        self._proxy = proxy
        self._admitted = admitted
        self._files: Mapping[str, PageFile] = page_files()
        self._connections: set[PageConnection] = set()
        self._closing = False

    def application(self) -> web.Application:
        application = web.Application(middlewares=[self._guarded()])
        routes = application.router
        routes.add_get("/", self._index)
        routes.add_get("/static/{name}", self._static)
        routes.add_get("/ws", self._socket)
        routes.add_post("/voices", self._voices)
        routes.add_get("/recordings/{name}", self._recording)
        routes.add_post("/leave", self._leave)
        return application

    async def close(self) -> None:
        self._closing = True
        sessions = list(self.sessions.values())
        for session in sessions:
            session.close("the softphone was ended")
        await asyncio.gather(*(session.ended() for session in sessions))
        await asyncio.gather(*(each.leave() for each in list(self._connections)))

    # --- for connections

    def admit(self, token: str, address: str) -> None:
        now = self._services.clock.now()
        wait_s = self._access.wait_s(address, now)
        if not self._access.admits(token, address, now):
            raise SlowDown(wait_s) if wait_s else BadToken

    async def refresh(self) -> None:
        await self._services.refresh()

    def session(self, resume: str | None, address: str, program: str) -> tuple[PageSession, bool]:
        known = self.sessions.get(resume or "")
        if known is not None and not known.closed:
            return known, True
        if self._closing or len(self.sessions) >= self._services.settings.max_sessions:
            raise ServerBusy(
                "The softphone has no room for one more page.",
                remedy="Close another one, or try again in a moment.",
            )
        made = PageSession(self._services, host=address, program=program, on_over=self._forget)
        self.sessions[made.id] = made
        return made, False

    def _forget(self, session: PageSession) -> None:
        self.sessions.pop(session.id, None)

    # --- requests

    def _guarded(self) -> Middleware:
        @web.middleware
        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            try:
                asked = self._asked(request)
                if not self._hosts.admits(asked.host):
                    raise WrongPlace
                if request.method == "POST" or request.path == "/ws":
                    origin = request.headers.get("Origin")
                    ours = self._hosts.same_origin(origin, asked.host, asked.scheme)
                    if not ours and not self._proxy.is_public(origin):
                        raise WrongPlace
                response = await handler(request)
            except web.HTTPException as error:
                response = _refusal(error.status, "http", error.reason or "", "")
                if error.status == 405:
                    response.headers["Allow"] = error.headers.get("Allow", "GET")
            except SpeechError as error:
                status = STATUS.get(error.code, 422 if isinstance(error, BadRequest) else 500)
                response = _refusal(status, error.code, error.message, error.remedy)
                if isinstance(error, SlowDown):
                    response.headers["Retry-After"] = str(max(1, round(error.wait_s)))
            except Exception as error:
                logger.error("a request failed\n%s", traceback_without_message(error))
                if request.path == "/ws":
                    raise  # no HTTP response is possible any more
                words = "Internal error; the log has more."
                response = _refusal(500, "internal_error", words, "Try again.")
            if not response.prepared:
                self._put_headers(response, request)
            return response

        return guarded

    def _put_headers(self, response: web.StreamResponse, request: web.Request) -> None:
        response.headers.update(HEADERS)
        asked = self._asked(request)
        sockets = [self._proxy.public_url] if self._proxy.public_url else []
        if self._hosts.admits(asked.host):
            sockets.append(f"{asked.scheme}://{asked.host}")
        policy = POLICY.format(socket=" ".join(f"ws{url[4:]}" for url in sockets))
        response.headers["Content-Security-Policy"] = policy

    def _asked(self, request: web.Request) -> BrowserRequest:
        return self._proxy.origin_of_request(request.remote or "", request.headers)

    async def _index(self, request: web.Request) -> web.StreamResponse:
        return self._file(INDEX)

    async def _static(self, request: web.Request) -> web.StreamResponse:
        return self._file(request.match_info["name"])

    def _file(self, name: str) -> web.Response:
        file = self._files.get(name)
        if file is None:
            raise web.HTTPNotFound
        charset = None if file.kind.startswith("image/png") else "utf-8"
        return web.Response(body=file.body, content_type=file.kind, charset=charset)

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        offered = request.headers.get("Sec-WebSocket-Protocol", "")
        if PROTOCOL not in [each.strip() for each in offered.split(",")]:
            raise BadRequest(f"This WebSocket speaks {PROTOCOL}.", remedy="Reload the page.")
        socket = web.WebSocketResponse(
            protocols=(PROTOCOL,),
            heartbeat=HEARTBEAT_S,
            max_msg_size=self._services.settings.message_bytes,
            compress=False,
            autoclose=False,
        )
        await socket.prepare(request)
        program = request.headers.get("User-Agent", "")
        connection = PageConnection(
            self, self._asked(request).address, program, self._services.settings.hello_s
        )
        if request.transport is not None:
            connection.abort = request.transport.abort
            connection.admitted = partial(self._admit_connection, request)
        self._connections.add(connection)
        try:
            await connection.serve(socket)
        finally:
            self._connections.discard(connection)
        return socket

    async def _voices(self, request: web.Request) -> web.StreamResponse:
        self._check_token(request)
        try:
            async with asyncio.timeout(UPLOAD_S):
                engine_id, voice = await self._uploaded(request)
                engine = self._services.engines.chosen(engine_id)
                entry = await clone_voice(engine, voice, self._services.settings.upload_s)
        except TimeoutError:
            raise ServerBusy(
                "The voice was not ready in time.", remedy="Try again, with a shorter recording."
            ) from None
        shown = {"id": entry.id, "name": entry.name, "language": entry.language}
        return web.json_response({"engine": engine.id, "voice": shown})

    async def _uploaded(self, request: web.Request) -> tuple[str | None, ReferenceVoice]:
        if not request.content_type.startswith("multipart/"):
            raise BadRequest("An upload is multipart/form-data.")
        most = self._services.settings.upload_bytes
        audio, fields = b"", dict[str, str]()
        name = ""
        try:
            async for part in await request.multipart():
                if not isinstance(part, BodyPartReader):
                    raise BadRequest("An upload has no parts in parts.")
                if part.name == "audio":
                    audio = await _bounded(part, most)
                    name = (part.filename or "")[:80]
                elif part.name in ("ref_text", "engine", "name"):
                    data = await _bounded(part, 4 * MAX_TEXT_CHARS)
                    fields[part.name] = data.decode("utf-8", "replace").strip()[:MAX_TEXT_CHARS]
                else:
                    raise BadRequest("An upload has audio, ref_text, name and engine.")
        except (ValueError, AssertionError) as error:
            raise BadRequest("The upload is damaged.", remedy="Send it again.") from error
        shown = "".join(each for each in fields.get("name") or name if each.isprintable())
        voice = ReferenceVoice(audio, fields.get("ref_text") or None, shown.strip())
        return fields.get("engine") or None, voice

    async def _recording(self, request: web.Request) -> web.StreamResponse:
        self._check_token(request)
        path = self._services.recorded.path(request.match_info["name"])
        headers = {"Content-Disposition": f'attachment; filename="{path.name}"'}
        response = web.FileResponse(path, headers=headers)
        response.content_type = "audio/wav"
        self._put_headers(response, request)
        return response

    async def _leave(self, request: web.Request) -> web.StreamResponse:
        try:
            async with asyncio.timeout(LEAVE_S):
                data = await _leading(request.content, LEAVE_BYTES)
        except TimeoutError:
            raise BadRequest("The beacon of a page that leaves was not complete.") from None
        leave = read_leave(data)
        self.admit(leave.token, self._asked(request).address)
        session = self.sessions.get(leave.session)
        if session is not None:
            session.close("it was closed")
        return web.Response(status=204)

    def _check_token(self, request: web.Request) -> None:
        self.admit(bearer_token(request.headers.get("Authorization")), self._asked(request).address)
        self._admit_connection(request)

    def _admit_connection(self, request: web.Request) -> None:
        if request.transport is not None:
            self._admitted(request.transport.get_extra_info("peername"))


async def _leading(body: StreamReader, most: int) -> bytes:
    data = bytearray()
    while len(data) < most and (chunk := await body.read(most - len(data))):
        data += chunk
    return bytes(data)


async def _bounded(part: BodyPartReader, most: int) -> bytes:
    data = bytearray()
    while chunk := await part.read_chunk(65_536):
        data += chunk
        if len(data) > most:
            raise LimitExceeded(
                f"A part of the upload has more than {most:,} bytes.",
                remedy="Take a shorter recording: five to fifteen seconds are best.",
            )
    return bytes(data)


def _refusal(status: int, code: str, message: str, remedy: str) -> web.Response:
    body = {"error": {"code": code, "message": message, "remedy": remedy}}
    return web.json_response(body, status=status)
