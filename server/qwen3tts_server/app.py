"""The web application: routes, and nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request, Response, WebSocket
from fastapi.responses import JSONResponse

from qwen3tts_engine.base import Engine
from qwen3tts_engine.wrapped import healthy
from qwen3tts_server.dialects import openai, runvnc, vllm_omni
from qwen3tts_server.guard import add_guards
from qwen3tts_server.roles import check_routes, grant_of
from qwen3tts_server.service import Service
from qwen3tts_server.settings import ServerSettings

SPEECH_PATH = "/v1/speech"


def create_app(engine: Engine, settings: ServerSettings | None = None) -> FastAPI:
    """An application that serves ``engine``; ``app.state.service`` is its Service."""
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
    add_guards(app, service.settings)

    @app.websocket(SPEECH_PATH)
    async def speech(socket: WebSocket) -> None:
        await service.speak(socket)

    for dialect in (openai, vllm_omni, runvnc):
        dialect.add_routes(app, service)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """The process answers."""
        return {"status": "ok", "connections": service.connections}

    @app.get("/ready")
    async def ready() -> JSONResponse:
        """The engine is ready and new connections are welcome."""
        if not service.ready:
            state = "draining" if service.draining else "starting"
        else:
            state = "ready" if healthy(engine) else "engine away"
        return JSONResponse({"status": state}, status_code=200 if state == "ready" else 503)

    @app.get("/metrics", include_in_schema=False)
    async def metrics(request: Request) -> Response:
        """Figures for Prometheus."""
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

    check_routes(app.routes)
    return app
