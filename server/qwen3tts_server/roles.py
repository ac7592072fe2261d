"""What an API key may do: its role, and the role that each route asks for. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from starlette.routing import Route, WebSocketRoute, compile_path
from starlette.types import Scope

from .voices.stored import StoredVoice

WEBSOCKET = "WEBSOCKET"
"""Stands for a method in the table of routes."""


class Role(IntEnum):
    """What a key is for; each role has all that the ones below it have."""

    SPEAK = 1
    """Speak; upload, list and delete voices of its own."""
    VOICES = 2
    """List, replace and delete the voices that others have uploaded."""
    ADMIN = 3
    """Whatever changes the server itself."""

    @property
    def word(self) -> str:
        """Its name in files of keys and in messages."""
        return self.name.lower()


WORDS: Mapping[str, Role] = {role.word: role for role in Role}


@dataclass(frozen=True, slots=True)
class Grant:
    """Whose request it is, and what it may do."""

    role: Role
    owner: str
    """What stands for the key with the voices that were uploaded with it; empty: no key."""

    def may_manage(self, voice: StoredVoice) -> bool:
        """Return whether an uploaded voice may be listed, replaced and deleted."""
        return self.role >= Role.VOICES or voice.owner == self.owner


EVERYTHING = Grant(Role.ADMIN, "")
"""A server without keys is open."""
ANONYMOUS = Grant(Role.SPEAK, "anonymous")
"""A request without a key at a path that asks for none."""
_SCOPE_KEY = "qwen3tts.grant"


def owner_of(digest: bytes) -> str:
    """Return what stands for a key in the store of voices; the key cannot be found from it unless
    it can be guessed."""
    return hashlib.sha256(b"qwen3tts voice owner 1\n" + digest).hexdigest()[:32]


def put_grant(scope: Scope, grant: Grant) -> None:
    """Note in a request's scope what it may do."""
    scope[_SCOPE_KEY] = grant


def grant_of(scope: Mapping[str, Any]) -> Grant:
    """Return what a request may do; KeyError for one that has not passed the gate."""
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
    ("GET", "/v1/models"): Role.SPEAK,
    ("GET", "/v1/models/{model:path}"): Role.SPEAK,
    ("POST", "/v1/audio/speech"): Role.SPEAK,
    ("POST", "/v1/audio/speech/batch"): Role.SPEAK,
    ("POST", "/v1/audio/transcriptions"): Role.SPEAK,
    # Of uploaded voices each key sees, replaces and deletes its own; see Grant.may_manage.
    ("GET", "/v1/audio/voices"): Role.SPEAK,
    ("POST", "/v1/audio/voices"): Role.SPEAK,
    ("DELETE", "/v1/audio/voices/{name}"): Role.SPEAK,
    (WEBSOCKET, "/v1/speech"): Role.SPEAK,
    (WEBSOCKET, "/v1/audio/speech/stream"): Role.SPEAK,
    (WEBSOCKET, "/{path:path}"): Role.SPEAK,
    ("POST", "/start_profile"): Role.ADMIN,
    ("POST", "/stop_profile"): Role.ADMIN,
}
"""The role that each route of the application asks for; None: no key."""
_PATTERNS = [
    (method, compile_path(path)[0], role) for (method, path), role in ROUTES.items() if role
]


def role_for(method: str, path: str) -> Role:
    """Return the role that a request needs; what is not served asks for a key all the same.

    Args:
        method: of HTTP, or WEBSOCKET.
        path: below the application's own root.
    """
    served = "GET" if method == "HEAD" else method
    for each, pattern, role in _PATTERNS:
        if each == served and pattern.match(path):
            return role
    return Role.SPEAK


def check_routes(routes: Iterable[object]) -> None:
    """Refuse an application with a route that ROUTES does not know.

    Raises:
        LookupError: names it.
    """
    for route in routes:
        if isinstance(route, WebSocketRoute):
            methods = {WEBSOCKET}
        elif isinstance(route, Route):
            methods = set(route.methods or ()) - {"HEAD"}
        else:
            raise LookupError(f"a {type(route).__name__} has no role in roles.ROUTES")
        for method in methods:
            if (method, route.path) not in ROUTES:
                raise LookupError(f"{method} {route.path} has no role in roles.ROUTES")
