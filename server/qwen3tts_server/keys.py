"""API keys with roles, and the routes' roles."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from starlette.routing import Route, WebSocketRoute, compile_path
from starlette.types import Scope

from qwen3tts_server.settings import AccessSettings, good_key
from qwen3tts_server.voices.stored import StoredVoice
from qwen3tts_settings.key_files import readable_by_others
from qwen3tts_wire.errors import BadRequest

WEBSOCKET = "WEBSOCKET"
"""Method of WebSockets in the table."""


class Role(IntEnum):
    """Role of a key; includes the lower ones."""

    SPEAK = 1
    """Speak; manage own voices."""
    VOICES = 2
    """Manage others' uploaded voices."""
    ADMIN = 3
    """Change the server."""

    @property
    def word(self) -> str:
        return self.name.lower()


WORDS: Mapping[str, Role] = {role.word: role for role in Role}


@dataclass(frozen=True, slots=True)
class Grant:
    role: Role
    owner: str
    """Key's hash in the store of voices; empty: no key."""

    def may_manage(self, voice: StoredVoice) -> bool:
        return self.role >= Role.VOICES or voice.owner == self.owner


EVERYTHING = Grant(Role.ADMIN, "")
"""Grant of a server without keys."""
ANONYMOUS = Grant(Role.SPEAK, "anonymous")
"""Grant without a key at an open path."""
_SCOPE_KEY = "qwen3tts.grant"


def owner_of(digest: bytes) -> str:
    return hashlib.sha256(b"qwen3tts voice owner 1\n" + digest).hexdigest()[:32]


def put_grant(scope: Scope, grant: Grant) -> None:
    scope[_SCOPE_KEY] = grant


def grant_of(scope: Mapping[str, Any]) -> Grant:
    """Return a request's grant; KeyError where it has not passed the gate."""
    grant: Grant = scope[_SCOPE_KEY]
    return grant


ROUTES: Mapping[tuple[str, str], Role | None] = {
    ("GET", "/health"): None,
    ("GET", "/ready"): None,
    ("GET", "/docs"): Role.SPEAK,
    ("GET", "/docs/oauth2-redirect"): Role.SPEAK,
    ("GET", "/redoc"): Role.SPEAK,
    ("GET", "/openapi.json"): Role.SPEAK,
    ("GET", "/metrics"): Role.SPEAK,
    ("GET", "/v1/voices"): Role.SPEAK,
    ("POST", "/start_profile"): Role.ADMIN,
    ("POST", "/stop_profile"): Role.ADMIN,
}
"""Roles of the server's own routes; None: no key."""


class RouteRoles:
    def __init__(self, *tables: Mapping[tuple[str, str], Role | None]) -> None:
        """``tables``: role by method (or WEBSOCKET) and path."""
        self.routes = {route: role for table in tables for route, role in table.items()}
        self._patterns = [
            (method, compile_path(path)[0], role)
            for (method, path), role in self.routes.items()
            if role
        ]

    def needed(self, method: str, path: str) -> Role:
        served = "GET" if method == "HEAD" else method
        for each, pattern, role in self._patterns:
            if each == served and pattern.match(path):
                return role
        return Role.SPEAK

    def check(self, routes: Iterable[object]) -> None:
        """Raise LookupError for a route without a role."""
        for route in routes:
            if isinstance(route, WebSocketRoute):
                methods = {WEBSOCKET}
            elif isinstance(route, Route):
                methods = set(route.methods or ()) - {"HEAD"}
            else:
                raise LookupError(f"a {type(route).__name__} has no role in ROUTES")
            for method in methods:
                if (method, route.path) not in self.routes:
                    raise LookupError(f"{method} {route.path} has no role in ROUTES")


log = logging.getLogger(__name__)

MAX_KEY_CHARS = 1024
MAX_FILE_BYTES = 1 << 20
LOOK_AGAIN_S = 1.0
"""Interval of checks of the file."""
_REMARK = re.compile(r"(^|\s)#.*")  # a # within a key belongs to it


class ApiKeys:
    def __init__(
        self,
        keys: Iterable[str] | Mapping[str, Role] = (),
        file: Path | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take keys (default role ``speak``) and a file's; raises BadRequest."""
        roles = keys if isinstance(keys, Mapping) else dict.fromkeys(keys, Role.SPEAK)
        self._fixed = [(_digest(key), role) for key, role in roles.items()]
        self._file = file
        self._clock = clock
        self._looked = clock()
        self._stamp: tuple[int, int, int] | None = None
        self._from_file: list[tuple[bytes, Role]] = []
        if file is not None:
            self._stamp, self._from_file = _read(file)

    @property
    def required(self) -> bool:
        return bool(self._fixed) or self._file is not None

    @classmethod
    def of(cls, access: AccessSettings) -> ApiKeys:
        roles: dict[str, Role] = {}
        # Of a key that stands in several lists the highest role counts.
        roles |= dict.fromkeys(access.api_keys, Role.SPEAK)
        roles |= dict.fromkeys(access.voices_keys, Role.VOICES)
        roles |= dict.fromkeys(access.admin_keys, Role.ADMIN)
        return cls(roles, access.api_key_file)

    def accepts(self, key: str) -> bool:
        return self.grant(key) is not None

    def grant(self, key: str) -> Grant | None:
        """Return a key's grant in constant time, or None."""
        self._look_again()
        if len(key) > MAX_KEY_CHARS:
            return None
        digest, found = _digest(key), 0
        for each, role in (*self._fixed, *self._from_file):
            found = max(found, role * hmac.compare_digest(each, digest))
        return Grant(Role(found), owner_of(digest)) if found else None

    def reload(self) -> None:
        if self._file is None:
            return
        try:
            self._stamp, self._from_file = _read(self._file)
        except BadRequest as error:
            log.warning("%s The keys stay as they are.", error.message)
        else:
            log.info("the file of API keys was read again: %d keys", len(self._from_file))

    def _look_again(self) -> None:
        now = self._clock()
        if self._file is None or now - self._looked < LOOK_AGAIN_S:
            return
        self._looked = now
        try:
            changed = _stamp(os.stat(self._file)) != self._stamp
        except OSError:
            changed = False
        if changed:
            self.reload()


def _digest(key: str) -> bytes:
    # Of one length, so that a comparison tells nothing of the length of a key either.
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _stamp(of: os.stat_result) -> tuple[int, int, int]:
    return of.st_mtime_ns, of.st_size, of.st_ino


def _read(file: Path) -> tuple[tuple[int, int, int], list[tuple[bytes, Role]]]:
    remedy = (
        "It holds one key a line, of visible ASCII characters without spaces, and behind it"
        f" {', '.join(WORDS)} where its role is not speak."
    )
    try:
        with file.open("rb") as data:
            stamp = _stamp(os.fstat(data.fileno()))
            text = data.read(MAX_FILE_BYTES + 1).decode("ascii")
    except OSError as error:
        raise BadRequest(
            f"The file of API keys {file} cannot be read: {error.strerror or error}.", remedy=remedy
        ) from error
    except UnicodeDecodeError:
        raise BadRequest(f"The file of API keys {file} is not ASCII.", remedy=remedy) from None
    if who := readable_by_others(file):
        log.warning("the file of API keys %s can be read by %s; chmod 600", file, who)
    lines = [_REMARK.sub("", line).strip() for line in text.splitlines()]
    keys = [line.split() for line in lines if line]
    if not keys:
        raise BadRequest(f"The file of API keys {file} holds no key.", remedy=remedy)
    if len(text) > MAX_FILE_BYTES or not all(map(_good_line, keys)):
        raise BadRequest(f"The file of API keys {file} holds something else.", remedy=remedy)
    return stamp, [(_digest(key), WORDS[role[0]] if role else Role.SPEAK) for key, *role in keys]


def _good_line(words: list[str]) -> bool:
    key, *role = words
    return good_key(key) and len(role) <= 1 and all(each in WORDS for each in role)
