"""The web application: routes, and nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, WebSocket
from fastapi.responses import JSONResponse

from qwen3tts_engine.base import Engine

from .service import Service
from .settings import ServerSettings

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

    app = FastAPI(title="mr_qwen3tts speech server", lifespan=lifespan)
    app.state.service = service

    @app.websocket(SPEECH_PATH)
    async def speech(socket: WebSocket) -> None:
        await service.speak(socket)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """The process answers."""
        return {"status": "ok", "connections": service.connections}

    @app.get("/ready")
    async def ready() -> JSONResponse:
        """The engine is ready and new connections are welcome."""
        good = service.started and not service.draining
        state = "ready" if good else "draining" if service.draining else "starting"
        return JSONResponse({"status": state}, status_code=200 if good else 503)

    @app.get("/v1/voices")
    async def voices() -> dict[str, Any]:
        """What may be asked for."""
        return {
            "voices": [
                {
                    "id": each.id,
                    "name": each.name,
                    "language": each.language,
                    "gender": each.gender,
                    "description": each.description,
                }
                for each in engine.voices()
            ]
        }

    return app
