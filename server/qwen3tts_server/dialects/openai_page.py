"""What the OpenAPI page says of the routes that read their bodies themselves."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from .encoding import FORMS, content_type
from .openai_request import SpeechRequest


class ErrorDetail(BaseModel):
    """What went wrong."""

    message: str = Field(description="The cause, and what to do.")
    type: str = Field(description="The kind of error, in OpenAI's words.")
    param: str | None = Field(description="The field that is meant.")
    code: str = Field(description="The name of the error; stable.")


class ErrorAnswer(BaseModel):
    """Every error."""

    error: ErrorDetail


class Usage(BaseModel):
    """Of a stream of events."""

    input_tokens: int = Field(description="Characters of the text.")
    output_tokens: int = Field(description="Codec frames of 80 ms.")
    total_tokens: int


class SpeechEvent(BaseModel):
    """The data of one event."""

    type: Literal["speech.audio.delta", "speech.audio.done", "speech.audio.error"]
    audio: str | None = Field(None, description="Base64; in each delta.")
    usage: Usage | None = Field(None, description="In the last event.")
    error: ErrorDetail | None = Field(None, description="Instead of usage.")


class Upload(BaseModel):
    """A recording that becomes a voice."""

    name: str = Field(min_length=1)
    consent: str = Field(min_length=1, description="The speaker's consent, or a name of it.")
    audio_sample: str = Field(
        description="The recording, as a file.",
        json_schema_extra={"format": "binary", "contentMediaType": "application/octet-stream"},
    )
    ref_text: str | None = Field(None, description="What the recording says.")
    speaker_description: str | None = None
    x_vector_only_mode: Literal["true", "false"] | None = None
    overwrite: Literal["true", "false"] | None = Field(
        None, description="true: an uploaded voice of that name is replaced."
    )


def _body(kind: str, model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema()
    return {"requestBody": {"required": True, "content": {kind: {"schema": _inlined(schema)}}}}


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its own definitions put where they are used: it stands by itself."""
    definitions = schema.pop("$defs", {})

    def put(value: Any) -> Any:
        if isinstance(value, dict):
            name = value.get("$ref")
            if isinstance(name, str):
                return put(definitions[name.removeprefix("#/$defs/")])
            return {key: put(each) for key, each in value.items()}
        return [put(each) for each in value] if isinstance(value, list) else value

    inlined: dict[str, Any] = put(schema)
    return inlined


_SOUND = {content_type(form): {"schema": {"type": "string", "format": "binary"}} for form in FORMS}
_EVENTS = {
    "text/event-stream": {
        "schema": {
            "type": "object",
            "description": "One event.",
            "required": ["data"],
            "properties": {
                "data": {
                    "type": "string",
                    "contentMediaType": "application/json",
                    "contentSchema": _inlined(SpeechEvent.model_json_schema()),
                }
            },
        }
    }
}
_HEADERS = {
    "X-Sample-Rate": "Hertz.",
    "X-Request-Id": "The request's name; yours, where you sent one.",
    "X-Cache-Starter": "Whether the first sound came from memory: true or false.",
    "X-Ignored-Fields": "Fields that change nothing with the model that is served.",
    "X-Word-Timestamps": "JSON: a list of {word, start_ms, end_ms}; at most 4 KiB.",
    "X-Word-Timestamps-Omitted": "Words at the end that found no room there.",
}

ERRORS: dict[int | str, dict[str, Any]] = {
    "default": {"model": ErrorAnswer, "description": "Any error."}
}
"""What every route may answer."""
SPEECH: dict[str, Any] = {
    "responses": {
        200: {
            "description": "The sound, in the form that was asked for.",
            "content": {**_SOUND, **_EVENTS},
            "headers": {
                name: {"description": text, "schema": {"type": "string"}}
                for name, text in _HEADERS.items()
            },
        }
    },
    "openapi_extra": _body("application/json", SpeechRequest),
}
UPLOAD: dict[str, Any] = {"openapi_extra": _body("multipart/form-data", Upload)}
