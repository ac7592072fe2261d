"""Middleware: API key, origin, connections by address, access log. Pure ASGI."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
import logging
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qwen3tts_server.keys import (
    ANONYMOUS,
    EVERYTHING,
    ROUTES,
    WEBSOCKET,
    ApiKeys,
    Grant,
    Role,
    RouteRoles,
    put_grant,
)
from qwen3tts_server.logs import request_id
from qwen3tts_server.settings import OPEN_PATHS, AccessSettings

log = logging.getLogger(__name__)

KEY_SUBPROTOCOL = "bearer."
"""A browser offers ``bearer.`` with its key in base64url (RFC 4648 section 5, unpadded), as it
cannot set WebSocket headers."""


@dataclass(frozen=True)
class Refusal:
    status: int
    code: str
    """OpenAI's ``error.code``."""
    message: str
    kind: str = "invalid_request_error"
    """OpenAI's ``error.type``."""
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def body(self) -> bytes:
        error = {"message": self.message, "type": self.kind, "param": None, "code": self.code}
        return json.dumps({"error": error}).encode()


NO_KEY = Refusal(
    401,
    "invalid_api_key",
    "An API key is required. Send it as `Authorization: Bearer KEY`.",
    headers=((b"www-authenticate", b"Bearer"),),
)
WRONG_KEY = Refusal(
    401,
    "invalid_api_key",
    "The API key is not one of this server's. Check it, and ask the server's operator.",
    headers=((b"www-authenticate", b'Bearer error="invalid_token"'),),
)
WRONG_ORIGIN = Refusal(
    403,
    "origin_not_allowed",
    "Web pages of this origin may not connect. The server's operator lists them in"
    " server.access.origins.",
)
WRONG_ROLE = {
    role: Refusal(
        403,
        "role_required",
        f"This takes an API key of the role {role.word}. The server's operator gives roles.",
        "permission_error",
    )
    for role in Role
}
TOO_MANY = Refusal(
    429,
    "rate_limit_exceeded",
    "This address has as many connections as it may. Close one, then try again.",
    "rate_limit_error",
    headers=((b"retry-after", b"1"),),
)


class Gate:
    """Check of key, origin, role and connections by address."""

    def __init__(
        self,
        app: ASGIApp,
        settings: AccessSettings,
        keys: ApiKeys,
        roles: RouteRoles | None = None,
        refused: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._roles = roles or RouteRoles(ROUTES)
        self._app = app
        self._refused = refused
        self._settings = settings
        self._keys = keys
        self._open = OPEN_PATHS | set(settings.open_paths)
        self._under_way: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        scope, key = _with_key(scope)
        address = address_of(scope)
        refusal = self._refusal(scope, key, address)
        if refusal is not None:
            log.info("refused: %s", refusal.code, extra={"fields": {"status": refusal.status}})
            self._refused(refusal.code)
            await _refuse(refusal, scope, receive, send)
            return
        self._under_way[address] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._under_way[address] -= 1
            if not self._under_way[address]:
                del self._under_way[address]

    def _refusal(self, scope: Scope, key: str | None, address: str) -> Refusal | None:
        headers = scope["headers"]
        origins = _values(headers, b"origin")
        hosts = _values(headers, b"host")
        if origins and not origin_allowed(origins, hosts, self._settings.origins):
            return WRONG_ORIGIN
        path = path_of(scope)
        grant = self._grant(key)
        put_grant(scope, grant or ANONYMOUS)
        if path in self._open and scope["type"] == "http":
            return None
        if grant is None:
            return NO_KEY if key is None else WRONG_KEY
        method = WEBSOCKET if scope["type"] == "websocket" else scope["method"]
        needed = self._roles.needed(method, path)
        if grant.role < needed:
            return WRONG_ROLE[needed]
        most = self._settings.max_connections_per_address
        if most and address and self._under_way[address] >= most:
            return TOO_MANY
        return None

    def _grant(self, key: str | None) -> Grant | None:
        if not self._keys.required:
            return EVERYTHING
        return None if key is None else self._keys.grant(key)


async def _refuse(refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    kind = "http.response"
    if scope["type"] == "websocket":
        await receive()  # websocket.connect
        if "websocket.http.response" not in (scope.get("extensions") or {}):
            await send({"type": "websocket.close", "code": 1008, "reason": refusal.code})
            return
        kind = "websocket.http.response"
    body = refusal.body()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *refusal.headers,
    ]
    start: Message = {"type": f"{kind}.start", "status": refusal.status, "headers": headers}
    await send(start)
    await send({"type": f"{kind}.body", "body": body})


def _values(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in headers if key.lower() == name]


def _with_key(scope: Scope) -> tuple[Scope, str | None]:
    key = None
    authorizations = _values(scope["headers"], b"authorization")
    if len(authorizations) == 1:
        kind, _, rest = authorizations[0].strip().partition(" ")
        if kind.lower() == "bearer" and rest.strip():
            key = rest.strip()
    offered = scope.get("subprotocols") or []
    if any(each.startswith(KEY_SUBPROTOCOL) for each in offered):
        held = [each for each in offered if each.startswith(KEY_SUBPROTOCOL)]
        others: MutableMapping[str, Any] = dict(scope)
        others["subprotocols"] = [each for each in offered if each not in held]
        scope = others
        if key is None and len(held) == 1:
            key = _from_base64url(held[0].removeprefix(KEY_SUBPROTOCOL))
    return scope, key


def _from_base64url(text: str) -> str | None:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except (binascii.Error, ValueError):
        return None


def origin_allowed(origins: list[str], hosts: list[str], allowed: tuple[str, ...]) -> bool:
    """Return whether a page of this origin may connect.

    The server's own page only by its bare address: a name may be made to lead here (DNS
    rebinding).
    """
    if len(origins) != 1:
        return False
    origin = origins[0].strip().lower()
    if "*" in allowed or origin in {each.lower() for each in allowed}:
        return True
    try:
        parts = urlsplit(origin)
        name = parts.hostname
    except ValueError:
        return False
    if not name or len(hosts) != 1 or parts.netloc != hosts[0].strip().lower():
        return False
    return name == "localhost" or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def path_of(scope: Scope) -> str:
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(root + "/") else path


def address_of(scope: Scope) -> str:
    """Return the counted address: IPv4, or IPv6 /64, one customer's (RFC 6177).

    Empty without an address.
    """
    client = scope.get("client")
    return group_of(client[0]) if client else ""


def group_of(address: str) -> str:
    """Return an address as counted; see ``address_of``."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((int(found), 64), strict=False))
    return str(found)


request_log = logging.getLogger("qwen3tts_server.settings")

QUIET = frozenset({"/health", "/ready", "/metrics"})
"""Polled paths, logged at debug level."""
MAX_PATH_CHARS = 128
_GOOD_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")


class AccessLog:
    """Access log: a line a request or WebSocket, with ``X-Request-Id``.

    Queries are not logged: some clients put keys there.
    """

    def __init__(self, app: ASGIApp, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        entry = _Entry(scope, self._clock())
        # In the scope itself: the answer to what breaks is made outside of all middleware.
        scope.setdefault("state", {})["request_id"] = entry.id
        token = request_id.set(entry.id)

        async def receiving() -> Message:
            message = await receive()
            entry.received(message)
            return message

        async def sending(message: Message) -> None:
            await send(entry.sent(message))

        try:
            await self._app(scope, receiving, sending)
        except BaseException:
            entry.broke = True
            raise
        finally:
            entry.write(self._clock())
            request_id.reset(token)


class _Entry:
    def __init__(self, scope: Scope, now: float) -> None:
        given = [value.decode("latin-1") for key, value in scope["headers"] if key == _ID_HEADER]
        good = len(given) == 1 and _GOOD_ID.fullmatch(given[0])
        self.id = given[0] if good else uuid.uuid4().hex[:16]
        self.broke = False
        self._scope = scope
        self._started = now
        self._status: int | None = None
        self._in = self._out = 0

    def received(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.request":
            self._in += len(message.get("body") or b"")
        elif kind == "websocket.receive":
            self._in += len(message.get("bytes") or message.get("text") or b"")
        elif kind == "websocket.disconnect" and self._status in (None, 101):
            self._status = message.get("code", 1005)

    def sent(self, message: Message) -> Message:
        kind = message["type"]
        if kind in ("http.response.start", "websocket.http.response.start"):
            self._status = message["status"]
            message = self._with_id(message)
        elif kind == "websocket.accept":
            self._status = 101
            message = self._with_id(message)
        elif kind in ("http.response.body", "websocket.http.response.body"):
            self._out += len(message.get("body") or b"")
        elif kind == "websocket.send":
            self._out += len(message.get("bytes") or message.get("text") or b"")
        elif kind == "websocket.close":
            self._status = message.get("code", 1000) if self._status == 101 else 403
        return message

    def _with_id(self, message: Message) -> Message:
        headers = [(key, value) for key, value in message.get("headers") or ()]
        if not any(key.lower() == _ID_HEADER for key, _ in headers):
            headers.append((_ID_HEADER, self.id.encode()))
        return {**message, "headers": headers}

    def write(self, now: float) -> None:
        scope = self._scope
        path = path_of(scope)
        level = logging.DEBUG if path in QUIET else logging.INFO
        if not request_log.isEnabledFor(level):
            return
        shown = "".join(char if "!" <= char <= "~" else "?" for char in path[:MAX_PATH_CHARS])
        method = scope["method"] if scope["type"] == "http" else "WEBSOCKET"
        client = scope.get("client")
        status = 500 if self.broke and self._status is None else self._status
        fields = {
            "status": status,
            "ms": round((now - self._started) * 1000, 1),
            "bytes_in": self._in,
            "bytes_out": self._out,
            "client": client[0] if client else "",
        }
        extra = {"fields": fields, "request": self.id}
        request_log.log(level, "%s %s", method[:16], shown, extra=extra)


_ID_HEADER = b"x-request-id"
