"""OpenAI's routes for speech, voices and models, with the fields of Qwen3-TTS."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from fastapi import FastAPI, Request, Response

from qwen3tts_server.dialects.http_bodies import HeadAsGet, json_object
from qwen3tts_server.dialects.http_errors import code_of, handle_errors
from qwen3tts_server.dialects.openai import voices as openai_voices
from qwen3tts_server.dialects.openai.answer import DIALECT, SpeechAnswer
from qwen3tts_server.dialects.openai.batch import Batch, BatchAnswer, read_batch
from qwen3tts_server.dialects.openai.openapi import (
    BATCH,
    ERRORS,
    SPEECH,
    TRANSCRIPTION,
    UPLOAD,
    exact_integers,
)
from qwen3tts_server.dialects.openai.request import Models, SpeechOrder, order, parse
from qwen3tts_server.dialects.openai.transcription import TranscriptAnswer, understood_recording
from qwen3tts_server.keys import Role, grant_of
from qwen3tts_server.service import Service
from qwen3tts_wire.errors import SpeechError

ROUTES = {
    ("GET", "/v1/models"): Role.SPEAK,
    ("GET", "/v1/models/{model:path}"): Role.SPEAK,
    ("POST", "/v1/audio/speech"): Role.SPEAK,
    ("POST", "/v1/audio/speech/batch"): Role.SPEAK,
    ("POST", "/v1/audio/transcriptions"): Role.SPEAK,
    # Of uploaded voices each key sees, replaces and deletes its own; see Grant.may_manage.
    ("GET", "/v1/audio/voices"): Role.SPEAK,
    ("POST", "/v1/audio/voices"): Role.SPEAK,
    ("DELETE", "/v1/audio/voices/{name}"): Role.SPEAK,
}


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the routes; all errors of ``app`` have OpenAI's shape from then on."""
    handle_errors(app)
    exact_integers(app)
    # It writes a line for each form that it cannot read; the answer to it says so already.
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)
    app.add_middleware(HeadAsGet)
    app.router.responses = {**app.router.responses, **ERRORS}
    models = Models(service)
    counted = service.meter.dialect(DIALECT).errored

    async def understood(request: Request) -> SpeechOrder:
        try:
            body = await json_object(request, service.settings.openai.max_body_bytes)
            asked = parse(body)
            models.find(asked.model)
            accept = ",".join(request.headers.getlist("accept"))
            return await order(asked, service.voices, service.settings.openai, accept)
        except SpeechError as error:
            counted(code_of(error))
            raise

    room = asyncio.Semaphore(service.settings.openai.batch_slots)

    async def batch_of(request: Request) -> Batch:
        settings = service.settings.openai
        try:
            body = await json_object(request, settings.max_body_bytes)
            asked = read_batch(body, settings)
            models.find(asked.model)
            return asked
        except SpeechError as error:
            counted(code_of(error))
            raise

    @app.post("/v1/audio/speech/batch", response_class=Response, **BATCH)
    async def batch(request: Request) -> Response:
        """Say several texts; each has its own result."""
        return BatchAnswer(service, await batch_of(request), room)

    @app.post("/v1/audio/speech", response_class=Response, **SPEECH)
    async def speech(request: Request) -> Response:
        """Say a text."""
        return SpeechAnswer(service, await understood(request))

    @app.post("/v1/audio/transcriptions", response_class=Response, **TRANSCRIPTION)
    async def transcription(request: Request) -> Response:
        """Write down a recording."""
        try:
            return TranscriptAnswer(service, await understood_recording(service, request))
        except SpeechError as error:
            counted(code_of(error))
            raise

    @app.get("/v1/audio/voices")
    async def voices(request: Request) -> dict[str, Any]:
        """The voices on offer, and those that were uploaded with the same key."""
        return await openai_voices.list_voices(service, grant_of(request.scope))

    @app.post("/v1/audio/voices", **UPLOAD)
    async def upload(request: Request) -> dict[str, Any]:
        """Make a voice of a recording."""
        with service.serving(DIALECT):
            return await openai_voices.upload_voice(service, request)

    @app.delete("/v1/audio/voices/{name}")
    async def remove(name: str, request: Request) -> dict[str, Any]:
        """Delete a voice that was uploaded with the same key."""
        with service.serving(DIALECT):
            return await openai_voices.delete_voice(service, name, grant_of(request.scope))

    @app.get("/v1/models")
    async def listed() -> dict[str, Any]:
        """The model that is served, by all its names."""
        return models.list()

    @app.get("/v1/models/{model:path}")
    async def described(model: str) -> dict[str, Any]:
        """One model."""
        return models.described(models.find(model))
