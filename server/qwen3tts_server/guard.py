"""What stands around all routes, whoever serves the application."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from . import profiler
from .access_log import AccessLog
from .gate import Gate
from .keys import ApiKeys
from .settings import ServerSettings

EXPOSED = ("X-Request-Id", "X-Sample-Rate", "X-Cache-Starter", "Retry-After")
"""Headers of answers that pages of other origins may read."""


def add_guards(app: FastAPI, settings: ServerSettings) -> None:
    """Keys, origins, bounds, the access log and, where they are wanted, the profiler's routes.

    ``app.state.keys`` is the ApiKeys. Raises BadRequest for a file of keys that cannot be used.
    """
    access = settings.access
    app.state.keys = ApiKeys.of(access)
    if app.state.keys.required:
        _tell_of_keys(app)
    if settings.profiler:
        profiler.add_routes(app, Path(settings.profile_folder))
    # The last one added is the first to see a request.
    refused = app.state.service.meter.refused
    app.add_middleware(Gate, settings=access, keys=app.state.keys, refused=refused)
    if access.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(access.origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=list(EXPOSED),
        )
    app.add_middleware(AccessLog)


def _tell_of_keys(app: FastAPI) -> None:
    """The OpenAPI page says that a key is needed, and asks for it."""
    described = app.openapi

    def openapi() -> dict[str, Any]:
        page = described()
        schemes = page.setdefault("components", {}).setdefault("securitySchemes", {})
        schemes["key"] = {"type": "http", "scheme": "bearer"}
        page["security"] = [{"key": []}]
        return page

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to change the page
