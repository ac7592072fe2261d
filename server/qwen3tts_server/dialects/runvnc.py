"""The runvnc protocol, at every path that nothing else is served at."""

from __future__ import annotations

import contextlib

from fastapi import FastAPI, WebSocket
from starlette.websockets import WebSocketDisconnect

from qwen3tts_server.dialects.http_errors import error_response
from qwen3tts_server.dialects.runvnc_connection import NAME, RunvncConnection
from qwen3tts_server.dialects.runvnc_messages import complaint
from qwen3tts_server.service import Service
from qwen3tts_wire.errors import ServerBusy

UNKNOWN_PATH = "No WebSocket is served at this path, or not with this subprotocol."
REMEDY = (
    "/v1/speech takes the subprotocol qwen3tts.speech.v1, /v1/audio/speech/stream vLLM-Omni's"
    " messages; runvnc's clients ask for no subprotocol and for no path below /v1/."
)


async def _refuse(socket: WebSocket) -> None:
    if "websocket.http.response" in (socket.scope.get("extensions") or {}):
        refusal = error_response(403, "not_found", UNKNOWN_PATH, remedy=REMEDY)
        await socket.send_denial_response(refusal)
    else:
        await socket.close()


def add_routes(app: FastAPI, service: Service) -> None:
    """Put the route into ``app``; it is to be the last of its WebSockets."""

    @app.websocket("/{path:path}")
    async def runvnc(socket: WebSocket, path: str) -> None:
        # Its clients ask for no subprotocol, and their servers have no versioned paths: whoever
        # does meant another protocol, and gets what an unknown path gets: HTTP 403.
        if socket.scope.get("subprotocols") or path.startswith("v1/"):
            await _refuse(socket)
            return
        await socket.accept()
        connection = RunvncConnection(socket, service)
        try:
            with service.serving(NAME, connection.drain):
                await connection.run()
        except ServerBusy as error:
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):
                await socket.send_text(complaint(error, "connection"))
                await socket.close(1013, f"{error}"[:120])
