"""Voices: listed, uploaded and deleted, with the fields of OpenAI and of vLLM-Omni."""

from __future__ import annotations

import contextlib
from typing import Any, get_args

from fastapi import Request

from qwen3tts_engine.base import CLONE
from qwen3tts_server.dialects.http_bodies import Form, form
from qwen3tts_server.dialects.http_errors import VoiceNotFound, about
from qwen3tts_server.dialects.qwen_fields import check_embedding, embedding_in, words_asked_for
from qwen3tts_server.keys import Grant, grant_of
from qwen3tts_server.service import Service
from qwen3tts_server.voices.names import checked_name
from qwen3tts_server.voices.stored import Kind, StoredVoice
from qwen3tts_wire.errors import BadRequest, ServerBusy, UnknownVoice

MAX_FORM_BYTES = 1 << 18
"""Of an upload besides its recording."""
_YES, _NO = ("true", "1", "yes", "on"), ("", "false", "0", "no", "off")


async def list_voices(service: Service, grant: Grant) -> dict[str, Any]:
    """Return the voices that ``grant`` may see; the last known ones while the store is away."""
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
    """Store a form's recording or speaker embedding; raises FieldRefused or BadRequest."""
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
    """Delete an uploaded voice; VoiceNotFound if ``grant`` manages none of that name."""
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
