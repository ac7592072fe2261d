"""Web application: routes of all dialects, health, metrics, middleware."""

from __future__ import annotations

import asyncio
import contextlib
import cProfile
import io
import itertools
import pstats
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.middleware.cors import CORSMiddleware

from qwen3tts_engine.base import Engine
from qwen3tts_engine.wrapped import healthy
from qwen3tts_server.dialects.table import dialects
from qwen3tts_server.gate import AccessLog, Gate
from qwen3tts_server.keys import ROUTES, ApiKeys, RouteRoles, grant_of
from qwen3tts_server.service import Service
from qwen3tts_server.settings import ServerSettings
from qwen3tts_settings.building import unknown_setting
from qwen3tts_settings.entries import entry_of

EXPOSED = ("X-Request-Id", "X-Sample-Rate", "X-Cache-Starter", "Retry-After")
"""Response headers readable across origins."""


def add_middleware(app: FastAPI, settings: ServerSettings, roles: RouteRoles) -> None:
    """Add access log, CORS, gate, and the profiler's routes if enabled.

    ``app.state.keys`` is the ApiKeys.

    Raises:
        BadRequest: the file of keys cannot be used.
    """
    access = settings.access
    app.state.keys = ApiKeys.of(access)
    if app.state.keys.required:
        _tell_of_keys(app)
    if settings.profiler:
        add_profiler_routes(app, Path(settings.profile_folder))
    # The last one added is the first to see a request.
    refused = app.state.service.meter.refused
    app.add_middleware(Gate, settings=access, keys=app.state.keys, roles=roles, refused=refused)
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
    described = app.openapi

    def openapi() -> dict[str, Any]:
        page = described()
        schemes = page.setdefault("components", {}).setdefault("securitySchemes", {})
        schemes["key"] = {"type": "http", "scheme": "bearer"}
        page["security"] = [{"key": []}]
        return page

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to change the page


def create_app(engine: Engine, settings: ServerSettings | None = None) -> FastAPI:
    """Return an application for ``engine``; ``app.state.service`` is its Service."""
    service = Service(engine, settings or ServerSettings())

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.close()

    app = FastAPI(title="mr_qwen3tts speech server", redirect_slashes=False, lifespan=lifespan)
    app.state.service = service
    served = dialects()
    roles = RouteRoles(ROUTES, *(each.ROUTES for each in served))
    add_middleware(app, service.settings, roles)
    for dialect in served:
        dialect.add_routes(app, service)
    for name in service.settings.dialects.keys() - service.dialects_configured:
        path, known = f"server.dialects.{name}", sorted(service.dialects_configured)
        raise unknown_setting(path, entry_of({}, "server.dialects"), known)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"status": "ok", "connections": service.connections}

    @app.get("/ready")
    async def ready() -> JSONResponse:
        if not service.ready:
            state = "draining" if service.draining else "starting"
        else:
            state = "ready" if healthy(engine) else "engine away"
        return JSONResponse({"status": state}, status_code=200 if state == "ready" else 503)

    @app.get("/metrics", include_in_schema=False)
    async def metrics(request: Request) -> Response:
        accept = request.headers.get("accept", "")
        body, content_type = service.meter.exposition(accept, ready=service.ready)
        return Response(body, headers={"content-type": content_type})

    @app.get("/v1/voices")
    async def voices(request: Request) -> dict[str, Any]:
        """What may be asked for: the engine's voices, and uploaded ones that the key manages."""
        return {
            "voices": [
                {
                    "id": each.id,
                    "name": each.name,
                    "language": each.language,
                    "gender": each.gender,
                    "description": each.description,
                }
                for each in service.voices.voices_for(grant_of(request.scope))
            ]
        }

    roles.check(app.routes)
    return app


MOST_S = 300.0
"""Longest profile: it slows everything down."""
SHOWN = 30
"""Functions in an answer."""


class Profiler:
    """Profiler of the event loop's thread only."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)
        self._running: cProfile.Profile | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def running(self) -> bool:
        return self._running is not None

    def start(self, most_s: float = MOST_S) -> None:
        if self._running is not None:
            raise RuntimeError("A profile is under way.")
        profile = cProfile.Profile()
        try:
            profile.enable()
        except ValueError as error:  # Python 3.12: another tool has the place
            raise RuntimeError("Another profiler or debugger is at work.") from error
        self._running = profile
        self._timer = asyncio.get_running_loop().call_later(most_s, self._stop_late)

    def stop(self) -> tuple[Path, str]:
        """Stop, write the file, return the slowest functions; RuntimeError if none runs."""
        profile, self._running = self._running, None
        if profile is None:
            raise RuntimeError("No profile is under way.")
        profile.disable()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"{time.strftime('%Y%m%dT%H%M%S')}-{next(self._numbers)}.pstats"
        path = self._folder / name
        profile.dump_stats(path)
        table = io.StringIO()
        pstats.Stats(profile, stream=table).sort_stats("cumulative").print_stats(SHOWN)
        return path, table.getvalue()

    def _stop_late(self) -> None:
        self._timer = None
        if self._running is not None:
            self.stop()


def add_profiler_routes(app: FastAPI, folder: Path) -> None:
    """``POST /start_profile`` and ``POST /stop_profile``, as vLLM has them."""
    profiler = Profiler(folder)

    @app.post("/start_profile", tags=["operations"])
    async def start_profile() -> JSONResponse:
        """Begin to write down where the event loop's time goes; it ends itself after 5 minutes."""
        return _answer(profiler.start)

    @app.post("/stop_profile", tags=["operations"])
    async def stop_profile() -> JSONResponse:
        """End the profile: the file for ``python -m pstats``, and what took the most."""

        def stop() -> dict[str, Any]:
            path, table = profiler.stop()
            return {"file": str(path), "table": table.splitlines()}

        return _answer(stop)


def _answer(act: Any) -> JSONResponse:
    try:
        answer = act() or {}
    except (RuntimeError, OSError) as error:
        message = error.strerror or "" if isinstance(error, OSError) else str(error)
        answer = {"message": f"{message} Nothing was changed.", "type": "invalid_request_error"}
        answer |= {"param": None, "code": "profiler"}
        return JSONResponse({"error": answer}, status_code=409)
    return JSONResponse({"status": "ok", **answer})
