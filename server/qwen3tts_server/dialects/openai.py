"""OpenAI's routes for speech, voices and models, with the fields of Qwen3-TTS."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request, Response

from qwen3tts_server.service import Service
from qwen3tts_wire.errors import SpeechError

from . import openai_voices
from .bodies import json_object
from .head_requests import HeadAsGet
from .http_errors import code_of, handle_errors
from .openai_answer import DIALECT, SpeechAnswer
from .openai_models import Models
from .openai_page import ERRORS, SPEECH, UPLOAD
from .openai_request import Order, order, parse


def add_routes(app: FastAPI, service: Service) -> None:
    """Put the routes into ``app``; all errors of ``app`` have OpenAI's shape from then on."""
    handle_errors(app)
    # It writes a line for each form that it cannot read; the answer to it says so already.
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)
    app.add_middleware(HeadAsGet)
    app.router.responses = {**app.router.responses, **ERRORS}
    models = Models(service)
    counted = service.meter.dialect(DIALECT).errored

    async def understood(request: Request) -> Order:
        try:
            body = await json_object(request, service.settings.openai.max_body_bytes)
            asked = parse(body)
            models.find(asked.model)
            accept = ",".join(request.headers.getlist("accept"))
            return await order(asked, service.voices, service.settings.openai, accept)
        except SpeechError as error:
            counted(code_of(error))
            raise

    @app.post("/v1/audio/speech", response_class=Response, **SPEECH)
    async def speech(request: Request) -> Response:
        """Say a text."""
        return SpeechAnswer(service, await understood(request))

    @app.get("/v1/audio/voices")
    async def voices() -> dict[str, Any]:
        """The voices on offer, and those that were uploaded."""
        return await openai_voices.listed(service)

    @app.post("/v1/audio/voices", **UPLOAD)
    async def upload(request: Request) -> dict[str, Any]:
        """Make a voice of a recording."""
        with service.serving(DIALECT):
            return await openai_voices.upload(service, request)

    @app.delete("/v1/audio/voices/{name}")
    async def remove(name: str) -> dict[str, Any]:
        """Delete a voice that was uploaded."""
        with service.serving(DIALECT):
            return await openai_voices.remove(service, name)

    @app.get("/v1/models")
    async def listed() -> dict[str, Any]:
        """The model that is served, by all its names."""
        return models.list()

    @app.get("/v1/models/{model:path}")
    async def described(model: str) -> dict[str, Any]:
        """One model."""
        return models.described(models.find(model))
