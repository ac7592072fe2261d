"""OpenAI's routes, with the fields of Qwen3-TTS."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, get_args

from fastapi import FastAPI, Request, Response

from qwen3tts_engine.base import CLONE
from qwen3tts_server.dialects.http_bodies import Form, HeadAsGet, form, json_object
from qwen3tts_server.dialects.http_errors import VoiceNotFound, about, code_of, handle_errors
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
from qwen3tts_server.dialects.qwen_fields import check_embedding, embedding_in, words_asked_for
from qwen3tts_server.keys import Grant, Role, grant_of
from qwen3tts_server.service import Service
from qwen3tts_server.voices.names import checked_name
from qwen3tts_server.voices.stored import Kind, StoredVoice
from qwen3tts_wire.errors import BadRequest, ServerBusy, SpeechError, UnknownVoice

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
    """Add the routes; all errors of ``app`` then have OpenAI's shape."""
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
        return await list_voices(service, grant_of(request.scope))

    @app.post("/v1/audio/voices", **UPLOAD)
    async def upload(request: Request) -> dict[str, Any]:
        """Make a voice of a recording."""
        with service.serving(DIALECT):
            return await upload_voice(service, request)

    @app.delete("/v1/audio/voices/{name}")
    async def remove(name: str, request: Request) -> dict[str, Any]:
        """Delete a voice that was uploaded with the same key."""
        with service.serving(DIALECT):
            return await delete_voice(service, name, grant_of(request.scope))

    @app.get("/v1/models")
    async def listed() -> dict[str, Any]:
        """The model that is served, by all its names."""
        return models.list()

    @app.get("/v1/models/{model:path}")
    async def described(model: str) -> dict[str, Any]:
        """One model."""
        return models.described(models.find(model))


MAX_FORM_BYTES = 1 << 18
"""Upload size besides the recording."""
_YES, _NO = ("true", "1", "yes", "on"), ("", "false", "0", "no", "off")


async def list_voices(service: Service, grant: Grant) -> dict[str, Any]:
    """Return voices visible to ``grant``; the last known while the store is away."""
    with contextlib.suppress(ServerBusy):
        await service.voices.refresh()
    stored = service.voices.stored(grant)
    brought = {CLONE + each.name for each in stored}
    own = [each for each in service.voices.voices_for(grant) if each.id not in brought]
    return {
        "object": "list",
        "data": [
            *({"id": each.id, "object": "audio.voice", "name": each.name} for each in own),
            *(_openai(each) for each in stored),
        ],
        "voices": [*(each.id for each in own), *(each.name for each in stored)],
        "uploaded_voices": [_uploaded(each) for each in stored],
    }


async def upload_voice(service: Service, request: Request) -> dict[str, Any]:
    """Store an upload; raises FieldRefused or BadRequest."""
    sent = await form(request, service.settings.voices.max_bytes + MAX_FORM_BYTES)
    if sent.fields.get("type", "audio_sample") not in get_args(Kind):
        with about("type"):
            raise BadRequest(
                "Voices are made of recordings and of speaker embeddings only.",
                remedy="Send audio_sample, a recording, or speaker_embedding.",
            )
    name, consent = _needed(sent, "name"), _needed(sent, "consent")
    with about("name"):
        checked_name(name)
    source: bytes | tuple[float, ...] | None = sent.files.get("audio_sample")
    words = sent.fields.get("ref_text", "").strip() or None
    if "speaker_embedding" in sent.fields:
        numbers = embedding_in(sent.fields["speaker_embedding"])
        check_embedding(service.voices, numbers, recording=bool(source or words))
        source = numbers
    if not source:
        with about("audio_sample"):
            raise BadRequest(
                "There is no recording and no speaker embedding.",
                remedy="Send a recording as a file in audio_sample, or speaker_embedding.",
            )
    # Left out, it is made true where there are no words, as vLLM-Omni has it.
    asked = sent.fields.get("x_vector_only_mode", "").strip()
    x_vector_only = _flag(sent, "x_vector_only_mode") if asked else None
    replace = _flag(sent, "overwrite")
    with words_asked_for():
        stored = await service.voices.add(
            name,
            source,
            ref_text=words,
            x_vector_only=x_vector_only,
            consent=consent,
            description=sent.fields.get("speaker_description", ""),
            replace=replace,
            grant=grant_of(request.scope),
        )
    return {**_openai(stored), "success": True, "voice": _uploaded(stored)}


async def delete_voice(service: Service, name: str, grant: Grant) -> dict[str, Any]:
    """Delete an upload; VoiceNotFound where ``grant`` manages none."""
    try:
        gone = await service.voices.remove(name, grant)
    except UnknownVoice as error:
        raise VoiceNotFound(
            "No voice of that name was uploaded.",
            remedy="GET /v1/audio/voices lists those that were.",
        ) from error
    return {
        "id": gone.name,
        "object": "audio.voice.deleted",
        "deleted": True,
        "success": True,
        "message": "The voice was deleted.",
    }


def _needed(sent: Form, name: str) -> str:
    value = sent.fields.get(name, "").strip()
    if not value:
        with about(name):
            raise BadRequest(f"The field {name} is missing.", remedy="Send it with the recording.")
    return value


def _flag(sent: Form, name: str) -> bool:
    value = sent.fields.get(name, "").strip().lower()
    if value not in _YES + _NO:
        with about(name):
            raise BadRequest(f"{name} is neither true nor false.", remedy="Send true or false.")
    return value in _YES


def _openai(voice: StoredVoice) -> dict[str, Any]:
    return {
        "id": voice.name,
        "object": "audio.voice",
        "name": voice.name,
        "created_at": int(voice.created),
        "type": voice.kind,
    }


def _uploaded(voice: StoredVoice) -> dict[str, Any]:
    return {
        "name": voice.name,
        "voice_id": voice.voice_id,
        "content": voice.content,
        "consent": voice.consent,
        "created_at": int(voice.created),
        "file_size": voice.bytes,
        "seconds": voice.seconds,
        "ref_text": voice.ref_text,
        "speaker_description": voice.description,
        "x_vector_only_mode": voice.x_vector_only,
    }
