"""vLLM-Omni's WebSocket for speech."""

from __future__ import annotations

import contextlib

from fastapi import FastAPI
from starlette.websockets import WebSocket, WebSocketDisconnect

from qwen3tts_server.dialects.vllm_omni_connection import NAME, StreamConnection
from qwen3tts_server.dialects.vllm_omni_messages import message
from qwen3tts_server.service import Service
from qwen3tts_wire.errors import ServerBusy

PATH = "/v1/audio/speech/stream"


def add_routes(app: FastAPI, service: Service) -> None:
    """Put the routes into ``app``."""

    @app.websocket(PATH)
    async def stream(socket: WebSocket) -> None:
        await serve_stream(socket, service)


async def serve_stream(socket: WebSocket, service: Service) -> None:
    """Serve one WebSocket until it ends; there is always a close frame."""
    await socket.accept()
    connection = StreamConnection(socket, service)
    try:
        with service.serving(NAME, connection.drain):
            await connection.run()
    except ServerBusy as error:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            busy = message("error", message=str(error), code=error.code, retryable=True)
            await socket.send_text(busy)
            await socket.close(1013, f"{error}"[:120])
